"""The driver's half of training: survey, partition, route, balance, leaves, model.

May import: dcpred.execution, dcpred.cost, dcpred.plan, dcpred.version, dcpred.summary, and dcpred_tasks;
within functions, for a table, dcpred.datasets.
"""
