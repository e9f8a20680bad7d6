"""Check that a JSON object is an evaluation: every field that a page draws is present and of its type.

This alone distinguishes wrong input from a bug in the drawing code: valid objects are drawn, and an error
after that is a bug, which is not reported as bad data.
"""

from collections.abc import Callable, Mapping
from typing import Any

ENDS_AND_MIDDLE = ("0.05", "0.5", "0.95")  # quantiles that a page names
LARGEST_COUNT = 2**62
_ABSENT = object()

Check = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1.8e308  # JSON has larger integers


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_name(value: Any) -> bool:
    return type(value) in (str, int, float, bool)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object_of(**fields: Check) -> Check:
    """An object with these fields; one whose name begins with `maybe_` may be missing or null."""

    def check(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        for name, own in fields.items():
            found = value.get(name.removeprefix("maybe_"), _ABSENT)
            if name.startswith("maybe_") and (found is _ABSENT or found is None):
                continue
            if found is _ABSENT or not own(found):
                return False
        return True

    return check


_POINTS = _object_of(x=_list_of(_is_number), y=_list_of(_is_number))
_CURVES = _object_of(
    **{"class": _is_name},
    auc=_is_amount,
    average_precision=_is_amount,
    roc=_POINTS,
    precision_recall=_POINTS,
)
_BINS = _list_of(_object_of(bin=_is_name, share=_is_amount, training_share=_is_amount))
_DRIFTS = _list_of(
    _object_of(
        maybe_name=_is_name,
        maybe_feature=_is_name,
        psi=_is_amount,
        p_value=_is_amount,
        large=_is_name,
        differs=_is_name,
        bins=lambda value: _BINS(value) and len(value) > 0,
    )
)
_DRIFT = _object_of(
    large=_is_name,
    features=_object_of(top=_DRIFTS),
    scores=_DRIFTS,
    maybe_beyond=_list_of(
        _object_of(
            maybe_name=_is_name,
            feature=_is_name,
            low_in_words=_is_name,
            high_in_words=_is_name,
            below=_is_count,
            above=_is_count,
            rows=_is_count,
        )
    ),
)
_QUANTILES = _object_of(**dict.fromkeys(ENDS_AND_MIDDLE, _is_number))
_ANY = _object_of(
    n_samples=_is_count,
    n_bad=_is_count,
    maybe_n_unlabelled=_is_count,
    maybe_model=_is_name,
    maybe_data=_is_name,
    maybe_trained_share=_is_amount,
    maybe_beyond_float64=_list_of(_is_name),
    maybe_predicted_cost_ratio=_is_amount,
    maybe_cost_ratio=_is_amount,
    maybe_us_per_row=_is_amount,
    maybe_early_accuracy=_is_amount,
    maybe_early_rmse=_is_amount,
    maybe_leaves=_object_of(
        leaf=_list_of(_is_count),
        rows=_list_of(_is_count),
        training_rows=_list_of(_is_count),
        error=_list_of(_is_amount),
    ),
    # Earlier versions compared nothing, and that is not drawn.
    maybe_drift=lambda value: isinstance(value, Mapping) and ("scores" not in value or _DRIFT(value)),
)
_OF_CLASSES = _object_of(
    accuracy=_is_amount,
    maybe_most_frequent_class=_is_name,
    maybe_most_frequent_share=_is_amount,
    maybe_f1_macro=_is_amount,
    maybe_costs=_list_of(_is_amount),
    maybe_cost_per_row=_is_amount,
    maybe_threshold=_is_amount,
    maybe_brier_score=_is_amount,
    balanced_accuracy=_is_amount,
    auc=_maybe(_is_amount),
    average_precision=_maybe(_is_amount),
    maybe_log_loss=_is_amount,
    maybe_calibration_error=_is_amount,
    classes=_list_of(
        _object_of(
            **{"class": _is_name},
            rows=_is_count,
            predicted=_is_count,
            maybe_recall=_is_amount,
            maybe_precision=_is_amount,
            maybe_auc=_is_amount,
        )
    ),
    maybe_confusion_matrix=_list_of(_list_of(_is_count)),
    maybe_confusions=_list_of(_object_of(**{"class": _is_name}, taken_for=_is_name, rows=_is_count)),
    maybe_curves=_list_of(_CURVES),
    maybe_thresholds=_list_of(
        _object_of(
            threshold=_is_amount, rows=_is_count, precision=_is_amount, recall=_is_amount, gain=_is_amount
        )
    ),
    maybe_reliability=_list_of(
        _object_of(mean_probability=_is_amount, share=_is_amount, rows=_is_count),
    ),
)
_OF_NUMBERS = _object_of(
    rmse=_maybe(_is_amount),
    r2=_maybe(_is_number),
    mae=_maybe(_is_amount),
    maybe_interval_alpha=_is_amount,
    maybe_interval_coverage=_is_amount,
    maybe_interval_width=_is_amount,
    maybe_interval_winkler=_is_amount,
    maybe_interval_quarters=_list_of(
        _object_of(
            rows=_is_count,
            least_prediction=_is_number,
            largest_prediction=_is_number,
            coverage=_is_amount,
        )
    ),
    residual_quantiles=lambda value: (
        _QUANTILES(value) and all(_is_share(name) and _is_number(one) for name, one in value.items())
    ),
    residual_histogram=_object_of(edges=_list_of(_is_number), rows=_list_of(_is_count)),
    residuals_by_prediction=_list_of(
        _object_of(rows=_is_count, mean_prediction=_is_number, residuals=_QUANTILES)
    ),
)


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def is_evaluation(r: Mapping[str, Any]) -> bool:
    """Whether it is what `dcpred evaluate --json` writes."""
    if not _ANY(r) or not r["n_samples"] - r["n_bad"] > 0:
        return False
    if not (_OF_CLASSES(r) and _fits_classes(r) if "accuracy" in r else _OF_NUMBERS(r) and _fits_numbers(r)):
        return False
    leaves = r.get("leaves")
    if leaves is None:
        return True
    columns = [leaves[name] for name in ("leaf", "rows", "training_rows", "error")]
    return len({len(column) for column in columns}) == 1 and all(n > 0 for n in leaves["rows"])


def _fits_classes(r: Mapping[str, Any]) -> bool:
    """Whether lists have equal lengths, and no fraction has the divisor 0."""
    rows = {one["class"]: one["rows"] for one in r["classes"]}
    matrix, n = r.get("confusion_matrix"), len(r["classes"])
    return (
        any(one.get("recall") is not None for one in r["classes"])
        and (matrix is None or [len(line) for line in matrix] == [n] * n)
        and all(rows.get(one["class"]) for one in r.get("confusions") or ())
        and all(
            len(one[curve]["x"]) == len(one[curve]["y"])
            for one in r.get("curves") or ()
            for curve in ("roc", "precision_recall")
        )
        and (not r.get("reliability") or None not in (r.get("calibration_error"), r.get("log_loss")))
    )


def _fits_numbers(r: Mapping[str, Any]) -> bool:
    bars = r["residual_histogram"]
    known = [r.get(name) is not None for name in ("interval_alpha", "interval_coverage")]
    return len(bars["edges"]) == len(bars["rows"]) + 1 > 1 and known[0] == known[1]
