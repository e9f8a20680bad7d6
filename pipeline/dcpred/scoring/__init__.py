"""Scoring over Zarr: preflight, plan, blocks, verification, repair.

May import: dcpred.verification, dcpred.runs, dcpred.execution, dcpred.plan, and dcpred_tasks.
"""
