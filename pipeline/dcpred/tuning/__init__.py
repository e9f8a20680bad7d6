"""Settings chosen by validation, within a cost.

May import: dcpred.training, dcpred.cost, dcpred.execution, and dcpred_tasks.
"""
