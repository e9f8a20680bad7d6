"""dcpred_tasks: the code of workers. Numerics, storage and task bodies; never imports dask or
distributed.
"""

import os

if os.name != "posix":
    raise ImportError(
        "Cannot import dcpred: it needs the file locks of Linux or macOS. On Windows, install it in WSL."
    )
