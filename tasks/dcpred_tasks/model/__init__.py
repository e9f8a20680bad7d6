"""The fitted model as arrays, and the plain definition of its scores in NumPy.

May import: the root of dcpred_tasks. This code does no I/O.
"""
