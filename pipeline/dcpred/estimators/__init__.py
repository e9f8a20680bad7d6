"""scikit-learn's API. Both classes are importable from here, because pickled estimators name this package.

May import: dcpred.training, dcpred.datasets, dcpred.execution, dcpred.serving,
dcpred.public, dcpred.version, and dcpred_tasks.
"""

from dcpred.estimators.classifier import DCPredClassifier
from dcpred.estimators.regressor import DCPredRegressor
from dcpred.estimators.settings import Settings

__all__ = ["DCPredClassifier", "DCPredRegressor", "Settings"]
