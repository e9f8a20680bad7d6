"""Measures of scores on rows with known targets, gathered block by block and merged.

May import: dcpred_tasks.model, dcpred_tasks.storage and the root. Counts and sums of blocks merge to the same
in any order: workers give the result of one process, bit for bit.
"""
