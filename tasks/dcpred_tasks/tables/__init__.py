"""Tables in Arrow and Parquet: rows encoded as a model needs them, as arrays of Zarr, and scores as tables.

May import: dcpred_tasks.artifacts, dcpred_tasks.model, dcpred_tasks.schema, dcpred_tasks.scoring,
dcpred_tasks.storage and the root. It alone imports pyarrow: the scoring path imports it within functions,
only for a table.
"""
