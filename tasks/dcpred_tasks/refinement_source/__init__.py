"""What the machine code of refinement is made of, and the command that makes its bitcode: `python -m
dcpred_tasks.refinement_source`, after a change here. Nothing of it is imported where models are trained.

May import: dcpred_tasks.engine_source, dcpred_tasks.engine, dcpred_tasks.training, dcpred_tasks.model
and the root.
"""
