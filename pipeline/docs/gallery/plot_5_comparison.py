"""
Beside scikit-learn and CatBoost
================================

Accuracy and the time of one row, for dcpred and what else one would try: digits of 64 pixels, one thread
each. CatBoost appears if it is installed.
"""

import os
import time
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from dcpred import DCPredClassifier

QUICK = os.environ.get("DCPRED_GALLERY") == "quick"

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
many = np.tile(X_test, (4 if QUICK else 40, 1))

systems = {
    "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
    "SVC": make_pipeline(StandardScaler(), SVC(C=10)),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=20 if QUICK else 100, random_state=0),
    "dcpred": DCPredClassifier(n_leaves=1, landmarks=32 if QUICK else 128, random_state=0),
}
if find_spec("catboost"):
    from catboost import CatBoostClassifier

    iterations = 30 if QUICK else 500
    systems["CatBoost"] = CatBoostClassifier(
        iterations=iterations, thread_count=1, verbose=0, allow_writing_files=False, random_seed=0
    )
else:
    print("CatBoost is not installed; its row is left out")

# %%
# The best of three times counts: other work on the machine only adds to a time.
results = {}
with threadpool_limits(1):
    for name, system in systems.items():
        system.fit(X_train, y_train)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            system.predict(many)
            times.append((time.perf_counter() - begin) / len(many) * 1e6)
        results[name] = system.score(X_test, y_test), min(times)
        print(f"{name:18} {results[name][0]:.3f}  {results[name][1]:8.2f} µs a row")

# %%
# Higher is more accurate, further left is faster.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, (accuracy, microseconds) in results.items():
    colour = "#c8553d" if name == "dcpred" else "#0b6e99"
    axes.scatter(microseconds, accuracy, s=70, color=colour)
    axes.annotate(name, (microseconds, accuracy), xytext=(8, -4), textcoords="offset points")
axes.set(xscale="log", xlabel="time of one row, µs", ylabel="accuracy on test rows", title="Digits")
axes.margins(x=0.25, y=0.15)
axes.grid(alpha=0.3)
plt.show()
