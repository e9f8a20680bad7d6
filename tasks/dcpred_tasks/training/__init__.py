"""The numerics of training: rows in, arrays out. No storage, no clock.

May import: dcpred_tasks.model and the root.
"""
