"""Bytes and arrays that appear whole or not at all: files, digests, Zarr, and what is tried again.

May import: the root of dcpred_tasks.
"""
