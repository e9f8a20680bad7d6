"""The common part of both estimators: from parameters to a fitted model, and from rows to decision values.

Data in memory (NumPy, pandas, polars, xarray) are trained on in this process. Dask collections and Zarr
arrays run through the graphs of the command line: on the workers of the current `distributed.Client`, or
without one in this process, block by block.
"""

import copy
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import metadata
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dcpred.datasets import dask_rows
from dcpred.datasets.split_rules import folds_of_estimator, with_equal_rows
from dcpred.estimators import out_of_core, tables
from dcpred.estimators import settings as rare
from dcpred.execution.progress import reporter, reporting, show, show_job, show_step
from dcpred.public.remarks import add_remarks, collecting, failing_from
from dcpred.serving.cost import predict_cost
from dcpred.training.choice import tell_if_dearer
from dcpred.training.column_report import columns_in_words
from dcpred.training.policy import STANDARD, policy_for
from dcpred_tasks.artifacts.data_schema import check_given_encoding, schema_of_given
from dcpred_tasks.artifacts.model_artifact import IfTaken, open_artifact, write_model
from dcpred_tasks.artifacts.model_layout import parts_of_table
from dcpred_tasks.artifacts.trained_rows import FIELD as TRAINED_ROWS
from dcpred_tasks.artifacts.trained_rows import sketch
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.input_kinds import (
    as_matrix,
    as_table,
    check_dense,
    check_one_table,
    dense_strips,
    for_rows,
    is_a,
    is_lazy,
    is_sparse,
    plain_numbers,
)
from dcpred_tasks.model.compact_model import Model, class_array
from dcpred_tasks.model.contributions import importances, mean_contributions
from dcpred_tasks.model.feature_names import Names, feature_names
from dcpred_tasks.model.label_rule import check_two_classes
from dcpred_tasks.model.predictive_outputs import novelty_of
from dcpred_tasks.model.uncertainty import Uncertainty
from dcpred_tasks.process import versions
from dcpred_tasks.schema.frames import encode_frame, is_frame, is_numeric
from dcpred_tasks.schema.schema import Schema, numbers_schema
from dcpred_tasks.storage.addresses import check_options, check_writable, local_path
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.task_bodies.predict_block import check_scored, decision_block, novelty_block, wrong_in_row
from dcpred_tasks.training.categories import (
    CodedFeatures,
    features_named,
    named_columns,
    numbered,
    target_coded,
    with_codes,
)
from dcpred_tasks.training.changed_settings import changed_settings
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import DEFAULTS, Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import check_survey, survey_rows, with_bins
from dcpred_tasks.training.training_remarks import training_remarks

DASK_FRAME = "dask.dataframe.DataFrame"
# Settings of an estimator without arguments, as far as nothing is chosen.
PLAIN_SETTINGS: dict[str, object] = {
    "scaling": "learned",
    "n_leaves": 1,
    "min_leaf_rows": 1,
    "landmarks": 32,
    "products": 0,
}


F = TypeVar("F", bound=Callable[..., Any])


def if_calibrated(method: F) -> F:
    """Hide a method from estimators with `calibrate=False`."""
    hidden: F = available_if(_is_calibrated)(method)
    return hidden


def _is_calibrated(estimator: Any) -> bool:
    calibrate = getattr(estimator.settings, "calibrate", None)
    if calibrate is not None and not calibrate:
        raise AttributeError(
            "Cannot predict probabilities, intervals or novelty: the setting calibrate is False. Set it to"
            " True and fit again."
        )
    return True


def _weighted(model: Model, factors: NDArray[np.float64]) -> Uncertainty | None:
    """Return the calibration of a model whose row weights include these weights of classes."""
    uncertainty = model.uncertainty
    if uncertainty is None or uncertainty.calibration is None or (factors == factors[:1]).all():
        return uncertainty
    return replace(uncertainty, calibration=replace(uncertainty.calibration, weight=factors))


class DCPredBase(BaseEstimator):  # type: ignore[misc]
    """Common part of classifier and regressor."""

    settings: rare.Settings | None
    schema_: Schema
    model_: Model
    _trained_rows: Any = None  # a sketch that identifies training rows
    _of_frame = False  # whether X was a frame whose columns were encoded
    _takes_encoded = False  # whether arrays may hold such rows: a model on disk does not know its X

    _doc_link_module = "dcpred"
    _task: str
    _renamed = {"random_state": "seed"}  # noqa: RUF012
    _not_settings = frozenset(
        {"n_jobs", "directory", "class_weight", "budget", "metric", "cv", "verbose", "settings"}
        | {"accept", "on_alarm", "prefer", "seconds"}
    )

    @property
    def _doc_link_template(self) -> str:
        """The documentation that the package names, which a notebook links to; "" without one."""
        urls = metadata("dcpred").get_all("Project-URL") or []
        return next((url.partition(", ")[2] for url in urls if url.startswith("Documentation, ")), "")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    @property
    def _takes_missing(self) -> bool:
        """Whether rows to train on may have NaN."""
        return not (isinstance(self.missing, str) and self.missing == "refuse")

    def _refit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Self:
        """Fit this estimator. A failed fit changes nothing: a fitted estimator keeps its model."""
        if is_lazy(X):
            out_of_core.current_client()  # It raises for one that cannot be used.
        fitted = copy.copy(self)
        fails_from = failing_from(self.on_alarm)
        with reporting(reporter(self.verbose)), collecting(self.accept, fails_from, is_fit=True) as collected:
            fitted._fit(X, y, sample_weight, groups)
        fitted.remarks_ = collected.in_words()
        self.__dict__ = fitted.__dict__
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        """Fit this estimator in place; attributes may be left in any state where it raises."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **params : dict
            Parameters by name; `settings__NAME` sets one in `settings`.

        Returns
        -------
        DCPredClassifier or DCPredRegressor
            This estimator.

        Raises
        ------
        ValueError
            If a name is unknown.
        """
        nested = {
            name.removeprefix(rare.PREFIX): params.pop(name)
            for name in list(params)
            if name.startswith(rare.PREFIX)
        }
        super().set_params(**params)
        if nested:  # Settings are frozen: other estimators may have the same object.
            self.settings = rare.changed_settings(self.settings, nested)
        return self

    def given_settings(self) -> dict[str, Any]:
        """Return the settings of training that parameters and `settings` give, by name."""
        common = self.get_params(deep=False).items()
        names = {k: self._renamed.get(k, k) for k, v in common if v is not None}
        given = {name: getattr(self, k) for k, name in names.items() if k not in self._not_settings}
        return given | rare.given_settings(self.settings)

    def _largest_weight(self) -> float:
        return float(self.given_settings().get("largest_weight", DEFAULTS["largest_weight"]))

    def _settings(self, n_features: int, names: Sequence[str] | None = None) -> Settings:
        """Return the settings of training. `names` are those of the features if they are not yet kept."""
        given = self.given_settings()
        # A parameter at its default is not given: some defaults depend on other settings.
        values: dict[str, object] = {"task": self._task} | {
            k: v for k, v in given.items() if not isinstance(v, int | float | str) or v != DEFAULTS.get(k)
        }
        out_of_core.check_search(self, self._task)
        if not self._names_settings():
            values |= PLAIN_SETTINGS
        elif self.budget is not None:
            values["min_leaf_rows"] = 1
        values["seed"] = _seed(self.random_state)
        n_jobs = self.n_jobs
        if n_jobs is not None and (
            not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0
        ):
            raise SettingsError(
                f"Cannot use n_jobs={n_jobs!r}: it is not a number of threads. Pass 1 or more, -1 for one"
                " thread on each core, or None for one."
            )
        schema = self._encoding()
        if schema is not None and self._of_frame:
            return self._beside_codes(make_settings(values), schema)
        known = getattr(self, "feature_names_in_", None) if names is None else names
        settings = numbered(make_settings(values), known, n_features)
        return settings if schema is None else with_codes(settings, schema.coded)

    def _beside_codes(self, settings: Settings, schema: Schema) -> Settings:
        """Settings that name features of X, where columns of the frame were numbered, and named features."""
        columns = [column.name for column in schema.sources]
        names = [*columns, *(name for name in schema.features if name not in columns)]
        places = {i: schema.features.index(name) for i, name in enumerate(names) if name in schema.features}
        with features_named(names):
            return with_codes(numbered(settings, names, len(columns)), schema.coded, places)

    def _encoding(self) -> Schema | None:
        """The schema that frames are encoded by; None where X is numbers as it is."""
        schema = getattr(self, "schema_", None)
        return None if schema is None or (schema.plain and not self._of_frame) else schema

    def _encoded(self, X: Any) -> Any:
        """X to train on as numbers. What encodes a frame or a Zarr array becomes `schema_`."""
        self._of_frame = self._takes_encoded = False
        if hasattr(self, "schema_"):
            del self.schema_
        check_one_table(X, "X")
        X = plain_numbers(X)
        if is_sparse(X):
            check_dense(X)
            return X.toarray()
        schema = schema_of_given(X)
        if schema is not None:
            self.schema_ = schema
        lazy = dask_rows.needs_schema(X)
        if not lazy and not tables.needs_schema(X):
            return X
        names = feature_names(X)
        if names is None:
            raise DataError(
                "Cannot encode X: its columns hold text, dates or categories, and have numbers for names."
                " Name them by strings."
            )
        setting = numbered(make_settings({"categorical": self.categorical}), names, len(names))
        columns = [names[column] for column in named_columns(setting)]
        learn = out_of_core.learn_frame if lazy else tables.learn_frame
        self.schema_, rows = learn(X, columns)
        self._of_frame = True
        return rows

    def _fit_rows(
        self,
        X: NDArray[Any],
        target: NDArray[Any],
        weight: NDArray[np.float64],
        class_factors: NDArray[np.float64],
        classes: tuple[Any, ...],
        groups: Any,
    ) -> None:
        forget_failures()
        used, settings = weight > 0, self._settings(X.shape[1])
        folds = self._folds(groups, target, len(X), settings)
        if not used.all():
            X, target, weight = X[used], target[used], weight[used]
            folds = folds and folds.take(np.flatnonzero(used))
        folds = with_equal_rows(X, target, folds, settings.seed)
        coded = target_coded(self._encoding(), settings)
        if self.budget is not None and classes:  # A search knows only classes that have weight.
            present, target = np.unique(target, return_inverse=True)
            classes, class_factors = tuple(classes[i] for i in present.tolist()), class_factors[present]
        both = weight * class_factors[target] if len(class_factors) else weight
        if self.budget is not None and out_of_core.current_client() is not None:
            self._fit_on_workers(X, target, both, settings, folds)
            if classes:  # The model has numbers of classes, of those that have weight.
                numbers = [int(number) for number in self.model_.classes]
                known, factors = tuple(classes[number] for number in numbers), class_factors[numbers]
                self.model_ = replace(self.model_, classes=known, uncertainty=_weighted(self.model_, factors))
            return
        self.tuned_: dict[str, Any] | None = None
        of_settings = self._task, settings.missing, settings.target_transform
        survey = survey_rows(X, target, weight, 0, *of_settings)
        named = replace(survey, classes=class_array(classes)[survey.classes]) if classes else survey
        check_survey(named, self._task)
        check_two_classes(settings.threshold, len(survey.classes))
        if self.budget is not None or not self._names_settings():
            settings = self._choice(X, target, both, settings, coded, folds)
        with show_job("training"), features_named(self._feature_names()):
            self.model_ = train_rows(
                X,
                target,
                weight,
                class_factors,
                survey,
                settings,
                classes,
                self.n_jobs,
                show_step,
                coded=coded,
                folds=folds,
            )
        number = np.arange(len(X), dtype=np.int64)
        self.model_ = with_bins(self.model_, X, number, survey, self._encoding(), settings.seed)
        self._trained_rows = sketch(X)
        if self.tuned_ is not None:
            tell_if_dearer(self.tuned_["chosen"], predict_cost(self.model_).cost_ratio)
        names = self.model_.scaling.names(self._feature_names())
        for sentence in columns_in_words(self.model_.scaling, survey, names):
            show(sentence)
        add_remarks(
            *training_remarks(X, target, number, survey, self._feature_names(), self._encoding(), classes)
        )
        add_remarks(*changed_settings(settings, self.model_.landmark_at))
        self._remember(settings)

    def _folds(self, groups: Any, y: Any, n_rows: int, settings: Settings) -> Folds | None:
        """How `cv` and `groups` hold rows out."""
        [groups] = out_of_core.computed(groups)
        if self.cv is not None and not isinstance(self.cv, int):
            [y] = out_of_core.computed(y)
        return folds_of_estimator(self.cv, groups, y, n_rows, settings.seed)

    def _feature_names(self) -> Sequence[str] | None:
        schema = self._encoding()
        return getattr(self, "feature_names_in_", None) if schema is None else schema.features

    def _names_settings(self) -> bool:
        return out_of_core.names_settings(self)

    def _choice(
        self,
        X: NDArray[Any],
        target: NDArray[Any],
        weight: NDArray[np.float64],
        settings: Settings,
        coded: CodedFeatures,
        folds: Folds | None,
    ) -> Settings:
        """Return the settings that the search chooses for these rows."""
        policy = policy_for(STANDARD, self.metric, self.prefer, self.seconds)
        given = X, target, weight, settings, self.budget, policy, coded, self.n_jobs, folds
        settings, self.tuned_ = out_of_core.choose(*given)
        return settings

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Make a temporary folder. Raises SettingsError if `directory` cannot hold one."""
        parent = None if self.directory is None else local_path(self.directory)
        try:
            folder = Path(tempfile.mkdtemp(prefix="dcpred-", dir=parent))
        except OSError as error:
            raise SettingsError(
                f"Cannot use directory={self.directory!r}: no folder can be made there ({error.strerror})."
                " Pass an existing folder with write access."
            ) from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _fit_on_workers(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        settings: Settings,
        folds: Folds | None,
        labels: Names | None = None,
    ) -> None:
        with self._folder() as folder:
            budget = self.budget if self._names_settings() else out_of_core.PLAIN
            policy = policy_for(STANDARD, self.metric, self.prefer, self.seconds)
            given = X, y, sample_weight, settings, folder, budget, policy
            settings, self.tuned_ = out_of_core.fit(*given, labels, self._encoding(), folds)
            model = open_artifact(folder / "model")
            self.model_ = model.model(support=settings.keep_support_vectors)
            self._trained_rows = model.provenance.get(TRAINED_ROWS)
        self.n_features_in_ = self.model_.n_features
        self._remember(settings)

    def _remember(self, settings: Settings) -> None:
        self.settings_ = settings_dict(settings)
        self.n_leaves_ = self.model_.n_leaves

    def _keep_names(self, names: Names | None) -> None:
        """What validate_data does for data in memory: a model of features without names has none."""
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._keep_columns()

    def _keep_columns(self) -> None:
        """Columns of an encoded frame are scikit-learn's features; names alone make a schema of numbers."""
        schema = self._encoding()
        if schema is None and not hasattr(self, "schema_") and hasattr(self, "feature_names_in_"):
            self.schema_ = numbers_schema(self.feature_names_in_.tolist())
        if schema is not None and self._of_frame:
            self.feature_names_in_ = np.array([column.name for column in schema.sources], dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)

    def _values(self, X: Any, early: bool = False) -> Any:
        """Decision values (n_samples, n_outputs) of rows, lazy where X is; NaN in rows without a score."""
        check_is_fitted(self, "model_")
        if is_sparse(X):
            return np.concatenate([self._values(strip, early) for strip in dense_strips(X)])
        rows = self._rows(X)
        if dask_rows.is_out_of_core(rows):
            return out_of_core.decision(self.model_, rows, early)
        return decision_block(rows, self.model_, early)

    def _rows(self, X: Any) -> Any:
        """Raw rows with their features in the order of training: lazy where X is, else an array in memory."""
        schema, only_frames = self._encoding(), self._of_frame and not self._takes_encoded
        columns = list(self.feature_names_in_) if schema is not None and only_frames else None
        check_one_table(X, "X", columns)
        check_given_encoding(X, getattr(self, "schema_", None))
        X = as_table(X)
        if is_frame(X) or not only_frames:  # an array is no frame, whatever it holds
            X = plain_numbers(X)
        if schema is not None and (only_frames or is_frame(X) or is_a(X, DASK_FRAME)):
            return self._encoded_rows(X, schema)
        if is_frame(X) and not is_numeric(X) and hasattr(self, "schema_"):
            return encode_frame(self.schema_, X)  # it refuses what is no number, and names the column
        rows = dask_rows.rows_to_score(X, self._feature_names())
        if dask_rows.is_out_of_core(rows):
            return rows
        if self._takes_encoded:  # n_features_in_ counts columns of the frame.
            return as_matrix(rows)
        return validate_data(
            self, rows, reset=False, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0
        )

    def _encoded_rows(self, X: Any, schema: Schema) -> Any:
        """Raw rows of a frame as the one that was trained on."""
        if is_a(X, DASK_FRAME):
            return out_of_core.encoded(X, schema)
        dask_rows.check_kind(X, "X")
        if not is_frame(X):
            raise DataError(
                f"Cannot score X: it is of type {type(X).__name__}, and the model encodes the columns of a"
                f" frame. {for_rows(X, list(self.feature_names_in_))}."
            )
        return encode_frame(schema, X, warns=True)

    def novelty(self, X: Any) -> Any:
        """Return the novelty score of rows. Requires the setting `calibrate`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples,)
            float64 from 0 to 1, lazy if X is: the fraction of the training rows of a row's leaf that lie
            closer to their mean than the row, in scaled features. NaN in lazy rows without a score.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
        """
        novelty_of(self._fitted())
        if is_a(X, DASK_FRAME):
            return self._framed(X, novelty_block, None, self.model_)
        return self._each_row(X, novelty_block, ())

    def _fitted(self) -> Model:
        check_is_fitted(self, "model_")
        model: Model = self.model_
        return model

    def _rows_to_explain(self, X: Any) -> tuple[Model, Any, Sequence[str] | None, Schema | None]:
        """Return what `dcpred.explain` needs: the model, rows, names of features, and the schema."""
        return self._fitted(), self._rows(X), self._feature_names(), self._encoding()

    def _each_row(self, X: Any, block: Callable[..., Any], shape: tuple[int, ...], *more: Any) -> Any:
        """What `block` gives for raw rows, float64 (n_samples, *shape), lazy where X is. Raises DataError."""
        if is_sparse(X):
            values = np.concatenate([block(self._rows(s), self.model_, *more) for s in dense_strips(X)])
        else:
            rows = self._rows(X)
            if dask_rows.is_out_of_core(rows):
                return out_of_core.each_row(self.model_, rows, block, shape, *more)
            values = block(rows, self.model_, *more)
        check_scored(values if values.ndim > 1 else values[:, None], self._why_unscored(X))
        return values

    def _why_unscored(self, X: Any) -> Callable[[int], str]:
        """What is wrong with a row of X, in memory, by its number."""

        def why(number: int) -> str:
            rows = self._rows(X.tocsr()[number].toarray()) if is_sparse(X) else self._rows(X)[number][None]
            return wrong_in_row(rows[0], self._feature_names(), self._encoding())

        return why

    def _framed(self, X: Any, block: Callable[..., Any], columns: Any, *more: Any) -> Any:
        """What `block` gives for a DataFrame of Dask, with its index: a Series, or a frame of `columns`."""
        check_is_fitted(self, "model_")
        names = None if self._encoding() is not None else getattr(self, "feature_names_in_", None)
        return out_of_core.framed(X, block, self._encoding(), names, columns, *more)

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Mean absolute contribution of each feature, float64 (n_features,).

        It is in units of the decision value, over training rows that the model keeps. With `calibrate=False`
        it is over the landmarks.
        """
        model, schema = self._fitted(), self._encoding() if self._of_frame else None
        names = self._feature_names()
        try:
            return mean_contributions(model, parts_of_table(schema, names, model.n_features))
        except DataError as error:  # hasattr asks.
            raise AttributeError(str(error)) from None

    @property
    def distance_shares_(self) -> NDArray[np.float64]:
        """Fraction of each feature in the squared distance of rows, float64 (n_features,), sum 1.

        It is the variance of the feature times the square of its scaling factor (times those of leaves). It
        shows which rows are similar for the model, not what a feature does to a prediction.
        """
        shares, schema = importances(self._fitted()), self._encoding()
        if schema is None or not self._of_frame:
            return shares
        return np.array([shares[span].sum() for _, span in schema.spans])

    def _scored(self, X: Any, early: bool = False) -> Any:
        """Decision values as `_values` gives them. Raises DataError for a row in memory without a score."""
        decision = self._values(X, early)
        if not dask_rows.is_out_of_core(decision):
            check_scored(decision, self._why_unscored(X))
        return decision

    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, str | bool | float] | None = None,
    ) -> str:
        """Write the fitted model, for `load_model` and `dcpred score`.

        Parameters
        ----------
        path : str or Path
            A new directory, or an address in an object store. The same model may be there already.
        overwrite : bool, default False
            Replace another model. Readers find either the old one or the new one, complete.
        storage_options : dict or None, default None
            Options of the object store, as `load_model` takes them.

        Returns
        -------
        str
            Hash of the model.

        Raises
        ------
        DataError
            If something else is at the path, or if classes are neither text nor numbers.
        """
        check_is_fitted(self, "model_")
        odd = next((label for label in self.model_.classes if not isinstance(label, str | int | float)), None)
        if odd is not None:
            raise DataError(
                f"Cannot save the model: its class {odd!r} is neither text nor a number. Fit it with"
                " y.astype(str)."
            )
        provenance: dict[str, Any] = {"versions": versions(), TRAINED_ROWS: self._trained_rows}
        names = self._feature_names()
        if names is not None:
            provenance["feature_names"] = list(names)
        with given_options(check_options(storage_options or {})):
            check_writable(path, "a model's files")
            schema = getattr(self, "schema_", None)
            if_taken: IfTaken = "replace" if overwrite else "keep"
            return write_model(path, self.model_, self.settings_, provenance, schema, if_taken=if_taken)


def _seed(random_state: Any) -> int:
    """An integer is the seed itself, as on the command line; any other value draws one."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**31:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
