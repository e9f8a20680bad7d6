"""
Ten million rows on a Dask cluster
==================================

A local Dask cluster scores ten million rows that never pass through this program: workers read blocks of a
Zarr array, and write blocks of scores.
"""

import os
import tempfile
from pathlib import Path

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import zarr
from dask.distributed import Client, LocalCluster

import dcpred

QUICK = os.environ.get("DCPRED_GALLERY") == "quick"
ROWS = 100_000 if QUICK else 10_000_000


def label(X):
    """A spiral: no line, and few thresholds, separate its two arms."""
    angle = np.arctan2(X[:, 1], X[:, 0])
    return (np.sin(angle + 3 * np.hypot(X[:, 0], X[:, 1])) > 0).astype("uint8")


place = tempfile.TemporaryDirectory(prefix="dcpred-gallery-")
folder = Path(place.name)

# %%
# The rows are random, and lazy until they are written. A sample has labels.
chunk = ROWS // 10
X = da.random.default_rng(0).normal(size=(ROWS, 4), chunks=(chunk, 4)).astype("float32")
X.to_zarr(str(folder / "new.zarr"), component="X")
known = np.random.default_rng(1).normal(size=(4_000 if QUICK else 40_000, 4)).astype("float32")

# %%
# Train and score on the cluster. Here its two workers are threads; in your program, ``client`` is the one
# that you have.
with (
    LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
    Client(cluster) as client,
):
    settings = {"n_leaves": 4 if QUICK else 16, "landmarks": 16, "scaling": "learned"}
    model = dcpred.train(known, folder / "model", y=label(known), settings=settings, client=client)
    run = dcpred.score(folder / "model", folder / "new.zarr", folder / "scores", client=client)
print(f"{run.n_rows:,} rows in {run.n_blocks} blocks, {run.rows_per_second:,.0f} rows a second")

# %%
# Two of the four features matter. The picture counts the labels over them.
scores = zarr.open_group(folder / "scores" / "scores.zarr", mode="r")
some = slice(0, min(ROWS, 1_000_000))
rows = zarr.open_group(folder / "new.zarr", mode="r")["X"][some]
found = scores["label"][some]
print(f"{(found == label(rows)).mean():.1%} of {len(rows):,} rows are right")
edges = np.linspace(-2.5, 2.5, 60 if QUICK else 160)
count, _, _ = np.histogram2d(rows[:, 0], rows[:, 1], edges)
ones, _, _ = np.histogram2d(rows[:, 0], rows[:, 1], edges, weights=found.astype(float))
with np.errstate(invalid="ignore"):
    share = ones / count
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
image = axes.imshow(share.T, origin="lower", extent=(-2.5, 2.5, -2.5, 2.5), cmap="RdYlBu", vmin=0, vmax=1)
axes.set(xlabel="first feature", ylabel="second feature", title=f"Labels of {len(rows):,} scored rows")
figure.colorbar(image, label="fraction with label 1")
plt.show()
place.cleanup()
