"""What a practitioner would pick instead, by the packages that are there, in one thread."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.comparison.rows import Rows

Predict = Callable[[NDArray[Any]], NDArray[Any]]


def rival(name: str, size: int, rows: Rows, shared: dict[str, Any]) -> Callable[[], tuple[Predict, Any]]:
    """What fits it, and gives what predicts class numbers or numbers, and its bytes when pickled. Its package
    is imported at once. Raises ImportError.
    """
    made = _made(name, size, rows, shared)

    def fit() -> tuple[Predict, dict[str, Any]]:
        made.fit(rows.X, rows.target)
        return (lambda X: np.asarray(made.predict(X))), {"bytes": len(pickle.dumps(made))}

    return fit


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
        return _sklearnex(several, shared["standard"])
    from sklearn import ensemble  # noqa: PLC0415

    if name == "random_forest":
        forest = ensemble.RandomForestClassifier if several else ensemble.RandomForestRegressor
        return forest(n_estimators=size, n_jobs=1, random_state=0)
    boosted = ensemble.HistGradientBoostingClassifier if several else ensemble.HistGradientBoostingRegressor
    return boosted(max_iter=size, random_state=0)


def _sklearnex(several: bool, settings: dict[str, Any]) -> Any:
    """With the γ and C that suit the exact model with standard scaling. Targets of SVR are scaled, for its
    C and its tube of 0.1 have their unit; its C is 10.
    """
    import daal4py  # noqa: PLC0415
    from sklearn.compose import TransformedTargetRegressor  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415
    from sklearnex.svm import SVC, SVR  # noqa: PLC0415

    daal4py.daalinit(1)  # It has threads of its own.
    gamma = settings["gamma"]
    if several:
        return make_pipeline(StandardScaler(), SVC(C=settings["C"], gamma=gamma))
    machine = make_pipeline(StandardScaler(), SVR(C=10.0, gamma=gamma))
    return TransformedTargetRegressor(machine, transformer=StandardScaler())
