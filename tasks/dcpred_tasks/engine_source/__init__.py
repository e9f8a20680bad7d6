"""What the engine's machine code is made of, and the command that makes its bitcode: `python -m
dcpred_tasks.engine_source`, after a change here. Nothing of it is imported where rows are scored.

May import: dcpred_tasks.engine, dcpred_tasks.model and the root.
"""
