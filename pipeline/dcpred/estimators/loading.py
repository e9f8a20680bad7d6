"""A model on disk as a fitted estimator."""

from dataclasses import asdict, fields
from typing import Any

from dcpred.estimators.classifier import DCPredClassifier
from dcpred.estimators.regressor import DCPredRegressor
from dcpred.estimators.settings import NAMES, as_parameters
from dcpred_tasks.artifacts.model_artifact import Artifact
from dcpred_tasks.artifacts.trained_rows import FIELD as TRAINED_ROWS
from dcpred_tasks.model.compact_model import class_array
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.training.settings import (
    AUTO,
    OF_FEATURES,
    Settings,
    in_effect,
    make_settings,
    numbers,
    settings_dict,
)

BALANCED = "balanced"


def fitted_estimator(artifact: Artifact) -> DCPredClassifier | DCPredRegressor:
    """Return the estimator whose `fit` might have given the model. Its parameters are the number of leaves
    and the settings that differ from the defaults: a clone trains with them, and does not search. It encodes
    frames as the data set was encoded.
    """
    body = artifact.body
    kind = DCPredRegressor if body["task"] == "regression" else DCPredClassifier
    known = {field.name for field in fields(Settings)}  # another version may have had others
    stored = {name: value for name, value in body["settings"].items() if name in known}
    settings = make_settings(in_effect(stored, body["task"]))
    model = artifact.model(support=artifact.has_support)
    estimator = kind(**as_parameters(_given(kind, settings) | _named(settings, artifact.schema)))
    estimator.model_ = model
    estimator.settings_ = settings_dict(settings)
    estimator.n_leaves_, estimator.n_features_in_ = model.n_leaves, model.n_features
    estimator._trained_rows = artifact.provenance.get(TRAINED_ROWS)
    if artifact.schema is not None:
        estimator.schema_ = artifact.schema
        estimator._of_frame = estimator._takes_encoded = not artifact.schema.plain
    estimator._keep_names(artifact.feature_names)
    if isinstance(estimator, DCPredClassifier):
        estimator.classes_ = class_array(model.classes)
    return estimator


def _named(settings: Settings, schema: Schema | None) -> dict[str, Any]:
    """Parameters that list features, by name where frames are encoded, without coded ones of the schema."""
    parameters: dict[str, Any] = {}
    if schema is None or schema.plain:
        return parameters
    for name in OF_FEATURES:
        text = str(getattr(settings, name))
        listed = numbers(text)
        features = [schema.features[f] for f in listed if name != "categorical" or f not in schema.coded]
        if listed:
            parameters[name] = [*([AUTO] if AUTO in text else []), *features] if features else AUTO
    return parameters


def _given(kind: type[DCPredClassifier | DCPredRegressor], settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from the defaults, by the names that an estimator has for them."""
    default = asdict(Settings(task=settings.task))
    given = {name: value for name, value in asdict(settings).items() if value != default[name]}
    given |= {"n_leaves": settings.n_leaves, "random_state": settings.seed}
    if settings.class_weight != BALANCED:
        given.pop("class_weight", None)
    known = {*kind._get_param_names(), *NAMES}
    return {name: value for name, value in given.items() if name in known}
