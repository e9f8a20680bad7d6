"""The driver's half of scoring: preflight, plan, blocks, verification, repair.

May import: dcpred.verification, dcpred.runs, dcpred.datasets, dcpred.execution, dcpred.plan, dcpred.public,
dcpred.summary, dcpred.parameters, and dcpred_tasks.
"""
