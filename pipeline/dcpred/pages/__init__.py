"""Pages of HTML that need no other file: texts, tables, and pictures that can be read without seeing them.

May import: dcpred.version, and dcpred_tasks.
"""
