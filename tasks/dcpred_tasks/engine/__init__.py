"""The compiled scoring engine, held equal to the plain definition by tests.

May import: dcpred_tasks.model and the root. `layout` is imported without LLVM: this file imports nothing.
"""
