"""Import of tables and matrices into Zarr.

May import: dcpred.public, dcpred.execution, dcpred.summary, and dcpred_tasks.
"""
