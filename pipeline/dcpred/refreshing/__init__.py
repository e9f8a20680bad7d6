"""Incremental scoring of new or changed data: complete runs side by side, of which one is the latest.

May import: dcpred.scoring, dcpred.verification, dcpred.runs, dcpred.datasets, dcpred.execution,
dcpred.public, and dcpred_tasks.
"""
