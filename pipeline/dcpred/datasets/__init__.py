"""Import of tables and matrices into Zarr.

May import: dcpred_tasks.
"""
