"""What the columns of a table are, and how their values become features: the schema of a data set.

May import: the root of dcpred_tasks. Nothing here does I/O, and no library of frames is imported.
"""
