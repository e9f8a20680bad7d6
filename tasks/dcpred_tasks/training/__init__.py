"""The worker's half of training, its numerics: rows in, arrays out, without storage or clock.

May import: dcpred_tasks.engine (machine code only), dcpred_tasks.model, dcpred_tasks.schema and the root.
"""
