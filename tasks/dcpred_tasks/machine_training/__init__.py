"""How machines and bases of other systems are trained, one a file; what they predict with lies in
dcpred_tasks.machines, in files of the same names.

Each is imported by name, only where a setting asks for it; dcpred_tasks.model.machine has the table.

May import: dcpred_tasks.machines, dcpred_tasks.model, dcpred_tasks.training and the root.
"""
