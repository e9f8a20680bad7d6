"""Atomic reads and writes of bytes and arrays: files, digests, Zarr, retries.

May import: the root of dcpred_tasks; within functions, for a table, dcpred_tasks.tables.
"""
