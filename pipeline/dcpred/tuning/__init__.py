"""Settings chosen by validation, within a cost.

May import: dcpred.training, dcpred.cost, dcpred.execution, dcpred.pages, and dcpred_tasks.
"""
