"""Reports: one page each of a model, an evaluation, a search, a run, the runs of a refresh, or a comparison.

May import: every package of dcpred but the command line, and dcpred_tasks.
"""
