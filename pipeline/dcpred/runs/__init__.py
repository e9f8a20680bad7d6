"""The state of a scoring run, all of which lies in its output.

May import: dcpred.execution, dcpred.plan, dcpred.version, and dcpred_tasks.
"""
