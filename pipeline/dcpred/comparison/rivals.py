"""What a practitioner would pick instead, by the packages that are there, in one thread."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.comparison.rows import Rows

Predict = Callable[[NDArray[Any]], NDArray[Any]]


def fit_rival(name: str, size: int, rows: Rows, shared: dict[str, Any]) -> tuple[Predict, int]:
    """What predicts class numbers or numbers, and its bytes when pickled. Raises ImportError."""
    made = _made(name, size, rows, shared)
    made.fit(rows.X, rows.target)

    def predict(X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(made.predict(X))

    return predict, len(pickle.dumps(made))


def _made(name: str, size: int, rows: Rows, shared: dict[str, Any]) -> Any:
    # Imported here: each of them takes seconds, and none is needed by the others.
    several = bool(rows.n_classes)
    if name == "lightgbm":
        import lightgbm  # noqa: PLC0415

        kind = lightgbm.LGBMClassifier if several else lightgbm.LGBMRegressor
        return kind(n_estimators=size, num_leaves=63, n_jobs=1, random_state=0, verbosity=-1)
    if name == "xgboost":
        import xgboost  # noqa: PLC0415

        kind = xgboost.XGBClassifier if several else xgboost.XGBRegressor
        return kind(n_estimators=size, n_jobs=1, random_state=0, verbosity=0)
    if name == "sklearnex_svc":
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
        from sklearn.preprocessing import StandardScaler  # noqa: PLC0415
        from sklearnex.svm import SVC, SVR  # noqa: PLC0415

        own = shared["standard"]
        machine = SVC(C=own["C"], gamma=own["gamma"]) if several else SVR(C=10.0, gamma=own["gamma"])
        return make_pipeline(StandardScaler(), machine)
    from sklearn import ensemble  # noqa: PLC0415

    if name == "random_forest":
        forest = ensemble.RandomForestClassifier if several else ensemble.RandomForestRegressor
        return forest(n_estimators=size, n_jobs=1, random_state=0)
    boosted = ensemble.HistGradientBoostingClassifier if several else ensemble.HistGradientBoostingRegressor
    return boosted(max_iter=size, random_state=0)
