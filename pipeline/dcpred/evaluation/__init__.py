"""How good a model is on rows whose answer is known, in numbers and in what pictures are drawn of.

May import: dcpred.cost, dcpred.execution, dcpred.plan, and dcpred_tasks.
"""
