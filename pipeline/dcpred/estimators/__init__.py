"""scikit-learn's API. A fitted estimator that was pickled names this package, so that both classes are found
here.

May import: dcpred.tuning, dcpred.training, dcpred.datasets, dcpred.execution, dcpred.serving,
dcpred.version, and dcpred_tasks.
"""

from dcpred.estimators.classifier import DCPredClassifier
from dcpred.estimators.regressor import DCPredRegressor
from dcpred.estimators.settings import Settings

__all__ = ["DCPredClassifier", "DCPredRegressor", "Settings"]
