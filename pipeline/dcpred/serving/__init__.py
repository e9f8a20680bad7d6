"""A trained model in memory: how programs predict with it, and what a prediction costs.

May import: dcpred.estimators within a function, and dcpred_tasks.
"""
