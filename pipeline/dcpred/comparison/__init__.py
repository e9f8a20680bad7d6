"""Comparison with baselines on one data set: `dcpred compare`.

May import: dcpred.cost, dcpred.datasets, dcpred.estimators, dcpred.execution, dcpred.pages, dcpred.tuning,
dcpred.summary, and dcpred_tasks.
"""
