"""Other systems for the same leaves, one a file: bases with a linear machine on them, and whole machines.

Each is imported by name, only where a model or a setting asks for it; dcpred_tasks.model.machine has the
table. Nothing else imports them.

May import: dcpred_tasks.model, dcpred_tasks.training and the root.
"""
