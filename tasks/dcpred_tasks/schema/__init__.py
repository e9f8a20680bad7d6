"""The schema of a data set: what the columns of a table are, and how their values become features.

May import: the root of dcpred_tasks; within functions, for columns of Arrow, dcpred_tasks.tables. This code
does no I/O, and imports no library of frames.
"""
