"""The driver's half of training: settings, chosen by validation or given; survey, partition, route, balance,
leaves, model.

May import: dcpred.datasets, dcpred.cost, dcpred.plan, dcpred.pages, dcpred.public,
dcpred.execution, dcpred.version, dcpred.summary, and dcpred_tasks.
"""
