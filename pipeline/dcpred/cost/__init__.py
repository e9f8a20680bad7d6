"""The cost of a prediction: predicted from the arrays of a model, and measured.

May import: dcpred_tasks.
"""
