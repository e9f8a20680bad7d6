"""The quality of a model on labelled rows, as numbers and as data for plots.

May import: dcpred.cost, dcpred.execution, dcpred.plan, and dcpred_tasks.
"""
