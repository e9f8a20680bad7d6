"""Import of tables and matrices into Zarr.

May import: dcpred.summary and dcpred_tasks.
"""
