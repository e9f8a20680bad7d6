"""Runs of task bodies: workers, tasks in flight, interrupts, one driver per directory, progress.

May import: dcpred.version, and dcpred_tasks.
"""
