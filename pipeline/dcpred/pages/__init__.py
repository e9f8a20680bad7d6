"""Pages of HTML that need no other file: texts, tables, and plots with text alternatives.

May import: dcpred.version, and dcpred_tasks.
"""
