"""The files of a training in progress, in both directions.

May import: dcpred_tasks.training, dcpred_tasks.model, dcpred_tasks.storage and the root.
"""
