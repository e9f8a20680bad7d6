"""Verification of an output against its records, and restoring of its metadata.

May import: dcpred.runs, dcpred.execution, and dcpred_tasks.
"""
