"""The numerics of training: rows in, arrays out. No storage, no clock.

May import: dcpred_tasks.engine (machine code alone), dcpred_tasks.model, dcpred_tasks.schema and the root.
"""
