"""Models as files that need no dcpred: ONNX graphs and C sources.

May import: dcpred.serving, dcpred.public, dcpred.version, and dcpred_tasks.
"""
