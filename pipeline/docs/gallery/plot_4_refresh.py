"""
A nightly refresh, and drift
============================

Four nights. Rows are appended each day, and each night scores only what is new. On the fourth day a sensor
breaks: the refresh does not publish that night.
"""

import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr

import dcpred
from dcpred_tasks.errors import IncompleteError

QUICK = os.environ.get("DCPRED_GALLERY") == "quick"
DAY = 20_000 if QUICK else 200_000

place = tempfile.TemporaryDirectory(prefix="dcpred-gallery-")
folder = Path(place.name)
rng = np.random.default_rng(0)
names = ["temperature", "pressure", "flow", "load"]


def one_day(broken=False):
    """Rows of one day; a broken sensor reports pressures that are too high."""
    X = rng.normal(size=(DAY, 4)).astype("float32")
    X[:, 1] += 1.5 * broken
    return X


known = one_day()[:4_000]
target = (known[:, 0] * known[:, 1] + known[:, 2] > 0).astype("uint8")
dcpred.train(known, folder / "model", y=target, settings={"n_leaves": 2, "scaling": "learned"})

# %%
# ``data.zarr`` grows by one chunk a day. ``refresh`` returns what it reused and scored, and raises an error
# for a night beyond ``max_drift``: readers of ``nightly/latest`` keep the night before.
data = zarr.open_group(folder / "data.zarr", mode="w")
X = data.create_array("X", shape=(0, 4), chunks=(DAY, 4), dtype="float32")
X.attrs["feature_names"] = names
nights = []
for day in range(1, 5):
    X.append(one_day(broken=day == 4))
    time.sleep(2.1)  # a chunk that is younger than two seconds would be scored again in the next night
    try:
        night = dcpred.refresh(folder / "model", folder / "data.zarr", folder / "nightly", max_drift=0.25)
    except IncompleteError as error:
        night = error.report
    print(f"night {day}: {night.state}, {night.scored_blocks} scored, {night.taken_blocks} reused")
    nights.append(night)

# %%
# The population stability index of the new rows names the culprit: it compares the bins of each feature with
# those of training. Above 0.25 it is large.
drift = nights[-1].new_drift["features"]["top"]
worst = max(drift, key=lambda found: found["psi"])
print(f"{names[worst['feature']]}: stability index {worst['psi']:.2f}")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
numbers = np.arange(1, 5)
reused = [night.taken_blocks for night in nights]
axes[0].bar(numbers, reused, color="#9cc5d6", label="reused")
axes[0].bar(
    numbers, [night.scored_blocks for night in nights], bottom=reused, color="#0b6e99", label="scored"
)
axes[0].set(xlabel="night", ylabel="blocks", title="Each night scores what is new", xticks=numbers)
axes[0].legend(frameon=False)
index = [night.new_drift["psi"] for night in nights]
axes[1].bar(numbers, index, color=np.where(np.array(index) > 0.25, "#c8553d", "#0b6e99"))
axes[1].axhline(0.25, color="grey", linestyle="--", label="max_drift")
axes[1].set(xlabel="night", ylabel="stability index of new rows", title="Drift", xticks=numbers)
axes[1].legend(frameon=False)
plt.show()
place.cleanup()
