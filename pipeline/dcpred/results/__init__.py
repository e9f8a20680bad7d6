"""Scores of a run as tables: with the ids of their rows, in files for other programs, or as arrays in Python.

May import: dcpred.runs, dcpred.datasets, dcpred.execution, dcpred.public, and dcpred_tasks.
"""
