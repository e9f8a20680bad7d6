"""Public functions that take any data, and call several rooms.

May import: everything of dcpred but dcpred.cli, and dcpred_tasks.
"""
