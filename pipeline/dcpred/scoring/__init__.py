"""The driver's half of scoring: preflight, plan, blocks, verification, repair.

May import: dcpred.verification, dcpred.runs, dcpred.execution, dcpred.plan, dcpred.public, dcpred.summary,
and dcpred_tasks.
"""
