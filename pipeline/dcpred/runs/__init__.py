"""The state of a scoring run, all of it in its output.

May import: dcpred.execution, dcpred.version, dcpred.public, and dcpred_tasks.
"""
