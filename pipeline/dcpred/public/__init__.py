"""What makes functions and results public: checks of arguments, texts of parameters, and how results print.

May import: dcpred.execution, and dcpred_tasks.
"""
