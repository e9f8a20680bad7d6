"""Score on workers that dask-jobqueue submits to Slurm: python jobqueue.py MODEL DATA OUTPUT [options]

An example, run with dask-jobqueue 0.9, for clusters where jobs of one core start sooner than one of many. The
scheduler and the driver live in this process: in a small job, or where that is allowed on a login node.
Workers come and go: each leaves before its job's time is over, and is replaced. Options are those of
`dcpred score`, whose exit code this is.

Certificates first, in a folder that the nodes share; jobs inherit the variables:
    deploy/make_certs.sh tls && set -a && . tls/env && set +a
"""

import subprocess
import sys

import dask
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    # The driver counts the workers that die with a block.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with SLURMCluster(
        cores=1,
        processes=1,
        memory="2GB",
        walltime="01:00:00",
        protocol="tls",
        worker_extra_args=["--lifetime", "55m", "--lifetime-stagger", "4m", "--no-dashboard"],
        job_script_prologue=["export OMP_NUM_THREADS=1"],
        log_directory="jobqueue-logs",
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        cluster.adapt(minimum_jobs=2, maximum_jobs=32)
        cluster.wait_for_workers(1)
        command = ["dcpred", "score", *sys.argv[1:], "--scheduler", cluster.scheduler_address]
        sys.exit(subprocess.run(command, check=False).returncode)
