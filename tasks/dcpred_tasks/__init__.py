"""dcpred_tasks: what runs on a worker. Numerics, storage and task bodies; never imports dask or
distributed.
"""

import os

if os.name != "posix":
    raise ImportError("dcpred needs Linux or macOS, whose file locks it uses. On Windows, install it in WSL.")
