"""Tables in Arrow and Parquet, encoded as a model needs them, and their rows as arrays of Zarr.

May import: dcpred_tasks.artifacts, dcpred_tasks.schema, dcpred_tasks.storage and the root. It alone imports
pyarrow: the scoring path imports it by name, only for a table.
"""
