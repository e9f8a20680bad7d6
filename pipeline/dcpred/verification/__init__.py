"""Verification of an output: its metadata, its blocks with their commit records, and its Delta table.

May import: dcpred.runs, dcpred.execution, dcpred.public, and dcpred_tasks.
"""
