"""How good scores are on rows whose answer is known: measures that are gathered block by block and merged.

May import: dcpred_tasks.model, dcpred_tasks.storage and the root. Workers find what one process finds, bit
for bit: what blocks count and sum merges to the same in any order.
"""
