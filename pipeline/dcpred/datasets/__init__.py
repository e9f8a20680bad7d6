"""Data files into Zarr.

May import: dcpred_tasks.
"""
