"""Scores of a run as tables: beside the ids of their rows, in files that others read, or as arrays in Python.

May import: dcpred.runs, dcpred.datasets, dcpred.execution, and dcpred_tasks.
"""
