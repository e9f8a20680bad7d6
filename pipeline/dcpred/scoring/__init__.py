"""The driver's half of scoring: preflight, plan, blocks, verification, repair.

May import: dcpred.verification, dcpred.runs, dcpred.datasets, dcpred.execution, dcpred.public, and
dcpred_tasks.
"""
