"""Scores of raw rows, and what is said of them: labels, statistics, drift, the self-test of a model.

May import: dcpred_tasks.engine, dcpred_tasks.model and the root; never the training wing (training, scratch).
"""
