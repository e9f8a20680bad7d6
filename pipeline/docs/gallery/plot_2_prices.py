"""
Prices with intervals
=====================

A regression of prices whose errors grow with the price, with an interval for each row: nine of ten prices lie
inside. The flats are simulated: the truth is known.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from dcpred import DCPredRegressor

QUICK = os.environ.get("DCPRED_GALLERY") == "quick"
ROWS = 3_000 if QUICK else 30_000

rng = np.random.default_rng(0)
area = rng.gamma(6.0, 14.0, ROWS) + 20
distance = rng.uniform(0, 30, ROWS)
age = rng.uniform(0, 100, ROWS)
worth = area * (4 + 6 * np.exp(-distance / 6)) * (1 + 0.4 * np.abs(age / 50 - 1) ** 2)
price = worth * np.exp(rng.normal(0, 0.08 + 0.006 * distance))
X = np.column_stack([area, distance, age])
train = np.arange(ROWS) < 2 * ROWS // 3

# %%
# Prices are learned on a logarithmic scale; predictions and intervals are on the scale of the target.
model = DCPredRegressor(n_leaves=4, scaling="learned", target_transform="log1p", random_state=0)
model.fit(X[train], price[train])
predicted = model.predict(X[~train])
low, high = model.predict_interval(X[~train], alpha=0.1).T
inside = (low <= price[~train]) & (price[~train] <= high)
print(f"R² {model.score(X[~train], price[~train]):.3f}, {inside.mean():.1%} of prices inside their intervals")

# %%
# Intervals are wide where prices are hard to predict: far away from the centre.
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
some = np.argsort(predicted)[:: len(predicted) // 120]
axes[0].vlines(predicted[some], low[some], high[some], color="#0b6e99", alpha=0.35)
axes[0].scatter(predicted[some], price[~train][some], s=9, color=np.where(inside[some], "#222222", "#c8553d"))
axes[0].set(xlabel="predicted price", ylabel="price", title="Intervals of 90 %; red: outside")
edges = np.linspace(0, 30, 11)
where = np.digitize(distance[~train], edges) - 1
width = [np.median(((high - low) / predicted)[where == i]) for i in range(10)]
covered = [inside[where == i].mean() for i in range(10)]
middles = (edges[1:] + edges[:-1]) / 2
axes[1].plot(middles, width, color="#0b6e99", label="relative width")
axes[1].plot(middles, covered, color="#c8553d", label="prices inside")
axes[1].set(xlabel="distance from the centre", ylim=(0, 1.05), title="Width follows the noise")
axes[1].legend(frameon=False, loc="center right")
plt.show()
