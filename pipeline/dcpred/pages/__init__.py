"""Pages of HTML and the charts that they hold.

May import: dcpred.public, dcpred.version, and dcpred_tasks.
"""
