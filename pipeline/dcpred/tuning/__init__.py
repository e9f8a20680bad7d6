"""Settings chosen by validation, within a cost.

May import: dcpred.training, dcpred.cost, dcpred.execution, dcpred.pages, dcpred.plan, dcpred.summary, and
dcpred_tasks.
"""
