"""Task bodies: top-level functions that take addresses, return a small receipt, and are safe to run twice.

May import: every subpackage of dcpred_tasks. Bodies that score never import the training wing.
"""
