"""Training over Zarr: survey, division, route, balance, leaves, model.

May import: dcpred.execution, dcpred.plan, dcpred.version, and dcpred_tasks.
"""
