"""Other systems for the same leaves, one a file: bases with a linear machine on them, and whole machines.
Here is what predicts; how it is trained lies in dcpred_tasks.machine_training.

Each is imported by name, only where a model or a setting asks for it; dcpred_tasks.model.machine has the
table. They need NumPy and nothing else.

May import: dcpred_tasks.model and the root.
"""
