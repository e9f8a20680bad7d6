"""The driver's half of evaluation: how well a model predicts, and why it predicts what it does.

May import: dcpred.datasets, dcpred.serving, dcpred.execution, dcpred.public, and dcpred_tasks.
"""
