"""Models as files that need no dcpred: ONNX graphs and C sources.

May import: dcpred.serving, and dcpred_tasks.
"""
