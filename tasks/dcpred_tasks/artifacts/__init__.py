"""What is kept: the model format and the commit records of scoring, each in both directions.

May import: dcpred_tasks.scoring, dcpred_tasks.engine, dcpred_tasks.model, dcpred_tasks.storage,
dcpred_tasks.schema and the root; within functions, for a table, dcpred_tasks.tables; never the training
wing.
"""
