"""
Tumours: which ones are malignant, and why?
===========================================

A classifier on scikit-learn's breast cancer data: probabilities of rows that it has not seen, and the
features behind one of them.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dcpred import DCPredClassifier, contributions

QUICK = os.environ.get("DCPRED_GALLERY") == "quick"

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
names = np.array(["malignant", "benign"])[y]
X_train, X_test, y_train, y_test = train_test_split(X, names, stratify=names, random_state=0)

# %%
# Without settings, ``fit`` searches for them. A few settings skip the search.
settings = {"n_leaves": 1, "landmarks": 16} if QUICK else {}
model = DCPredClassifier(**settings, random_state=0).fit(X_train, y_train)
print(f"{model.score(X_test, y_test):.3f} of {len(X_test)} test rows are right")

# %%
# Most probabilities are near 0 or 1. The rows between are those that a person should see.
malignant = model.predict_proba(X_test)[:, list(model.classes_).index("malignant")]
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
bins = np.linspace(0, 1, 21)
for name, colour in (("benign", "#0b6e99"), ("malignant", "#c8553d")):
    axes.hist(malignant[y_test == name], bins, label=name, color=colour, alpha=0.75)
axes.set(
    xlabel="probability of malignant", ylabel="test rows", yscale="symlog", title="What the model expects"
)
axes.legend(title="truth", frameon=False)

# %%
# The row nearest to one half, and what each of its features adds to the decision value.
row = int(np.argmin(np.abs(malignant - 0.5)))
found = contributions(model, X_test.iloc[[row]])  # positive: towards the second class
parts = found.values[0]
largest = np.argsort(np.abs(parts))[-8:]
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.barh(X.columns[largest], parts[largest], color=np.where(parts[largest] > 0, "#c8553d", "#0b6e99"))
axes.axvline(0, color="grey", linewidth=0.8)
axes.set(
    xlabel="part of the decision value", title=f"A row with probability {malignant[row]:.2f}: {y_test[row]}"
)
plt.show()
