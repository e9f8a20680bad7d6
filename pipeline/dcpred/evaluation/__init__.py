"""The driver's half of evaluation: how well a model predicts, and why it predicts what it does.

May import: dcpred.datasets, dcpred.cost, dcpred.plan, dcpred.serving, dcpred.public, dcpred.parameters,
dcpred.execution, dcpred.summary, and dcpred_tasks.
"""
