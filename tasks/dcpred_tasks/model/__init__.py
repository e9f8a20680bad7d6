"""The fitted model as arrays, and the plain definition of its scores in NumPy.

May import: the root of dcpred_tasks; within functions, for trees in machine code, dcpred_tasks.engine. This
code does no I/O.
"""
