"""The driver's half of training: settings, chosen by validation or given; survey, partition, route, balance,
leaves, model.

May import: dcpred.datasets, dcpred.serving, dcpred.execution, dcpred.pages, dcpred.public, dcpred.version,
and dcpred_tasks.
"""
