"""The state of a scoring run, all of it in its output.

May import: dcpred.execution, dcpred.plan, dcpred.version, dcpred.summary, and dcpred_tasks.
"""
