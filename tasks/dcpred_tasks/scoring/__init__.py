"""The worker's half of scoring: scores of rows, labels, statistics and drift, and the self-test of a model.

May import: dcpred_tasks.engine, dcpred_tasks.model, dcpred_tasks.schema and the root; never the training wing
(training, scratch).
"""
