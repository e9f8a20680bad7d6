"""Whether an output is what its records say, and how its metadata are brought back.

May import: dcpred.runs, dcpred.execution, and dcpred_tasks.
"""
