"""dcpred_tasks: what runs on a worker. Numerics, storage and task bodies; never imports dask or
distributed.
"""
