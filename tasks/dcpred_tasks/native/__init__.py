"""The C++ sources of what scores and refines, and the command that makes their bitcode: `python -m
dcpred_tasks.native`, after a change here. Nothing of it is imported where rows are scored.

May import: dcpred_tasks.training, dcpred_tasks.engine, dcpred_tasks.model and the root.
"""
