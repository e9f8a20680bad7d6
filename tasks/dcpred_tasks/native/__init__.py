"""The C++ sources of scoring and refinement, and the command that builds their bitcode: `python -m
dcpred_tasks.native`, after a change here. Scoring imports none of this.

May import: dcpred_tasks.training, dcpred_tasks.engine, dcpred_tasks.model and the root.
"""
