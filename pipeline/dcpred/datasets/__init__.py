"""Data sets: imported into Zarr, split, and found where a call names them.

May import: dcpred.public, dcpred.execution, dcpred.serving, and dcpred_tasks.
"""
