"""What a fitted model is, as arrays, and the plain definition of its scores in NumPy.

May import: the root of dcpred_tasks. Nothing here does I/O.
"""
