"""The public functions: one for each command, which parses options, calls it and prints its
result.

May import: everything of dcpred but dcpred.cli, and dcpred_tasks.
"""
