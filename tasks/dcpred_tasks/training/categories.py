"""Which features are one-hot encoded (model/coding.py): those of the setting `categorical`, and those that a
schema declares. A search may add others with few distinct values (code_candidates).
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.coding import LARGEST_CODE, WIDEST_RANGE
from dcpred_tasks.training.feature_list import as_text, numbers, parts
from dcpred_tasks.training.settings import AUTO, MISSING, NONE, OF_FEATURES, Settings

MOST_VALUES = 256  # distinct values of a one-hot encoded feature
LARGEST_FEATURE = 10**6  # largest number of a span, which bounds the memory for named features
# Fewest distinct values of a candidate of a search, and most columns of all candidates together.
FEWEST_AUTO, MOST_COLUMNS = 3, 512
FIRST_ROWS = 4_096  # rows whose values decide whether a feature may be a candidate
REMEDY = "Number its categories from 0 on, or leave it out."
RAREST = 10  # sampled rows of a value that has a column


class FeatureError(SettingsError):
    """A feature that a setting names is unsuitable: its number, the reason and the remedy."""

    def __init__(self, setting: str, feature: int, why: str, remedy: str, name: str | None = None) -> None:
        shown = feature if name is None else repr(name)
        super().__init__(f"Cannot use feature {shown} in {setting}: {why}. {remedy}")
        self.setting, self.feature, self.why, self.remedy = setting, feature, why, remedy


@contextmanager
def features_named(names: Sequence[str] | None) -> Iterator[None]:
    """Name features in errors of the `with` statement by their names, where these exist."""
    try:
        yield
    except FeatureError as error:
        if names is None:
            raise
        name = names[error.feature]
        raise FeatureError(error.setting, error.feature, error.why, error.remedy, name) from None


def numbered(settings: Settings, names: Sequence[str] | None, n_features: int | None = None) -> Settings:
    """Replace names of features in settings by numbers. Quoted text is a name; digits are a number: numbered
    settings do not change.

    names  of features; those from n_features on have only names

    Raises SettingsError for a feature that the data do not have.
    """
    texts = {name: str(getattr(settings, name)) for name in OF_FEATURES}
    for name, text in texts.items():
        if text not in OF_FEATURES[name]:
            texts[name] = _numbered(name, text, names, n_features)
    return replace(settings, **texts)  # type: ignore[arg-type]


def _numbered(setting: str, text: str, names: Sequence[str] | None, n_features: int | None) -> str:
    words = OF_FEATURES[setting]
    of_others = False  # whether other features are candidates
    places = {name: number for number, name in enumerate(() if names is None else names)}
    wanted: set[int] = set()
    spans: set[int] = set()
    for part, quoted in parts(text, setting):
        span = None if quoted else re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if part == AUTO and setting == "categorical" and (AUTO not in places or not quoted):
            of_others = True
        elif part in places and (span is None or span[2]):
            wanted.add(places[part])
        elif span:
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first or last > LARGEST_FEATURE:
                raise SettingsError(
                    f"Cannot use features {part} in {setting}: a span goes from a smaller number to a larger"
                    f" one, up to {LARGEST_FEATURE:,}. Write it as 1-3, with numbers of features."
                )
            spans.update(range(first, last + 1))
        elif not quoted and part in words:
            raise SettingsError(
                f"Cannot use {setting}={text!r}: {part} concerns all features. Write it alone, or only list"
                " features."
            )
        elif part in words:
            raise SettingsError(
                f"Cannot use feature {part!r} in {setting}: the data have no feature of that name. For the"
                f" choice {part}, set {setting} to it outside of a list."
            )
        else:
            raise SettingsError(
                f"Cannot use feature {part!r} in {setting}: the data"
                f" {'have no feature of that name' if places else 'do not name their features'}"
                f"{_nearest(part, (*places, *words))}. Write {', '.join(words)}, or numbers of features (3,7"
                " or 0-41), or names of features, in double quotes where they hold commas."
            )
    if n_features is not None and spans and max(spans) >= n_features:
        raise _absent(setting, max(spans), n_features, places)
    return _text(wanted | spans, of_others)


def with_codes(settings: Settings, coded: Sequence[int], places: Mapping[int, int] | None = None) -> Settings:
    """Numbered settings, with the features that a schema declares among the one-hot encoded ones; none stays
    none.

    places  the feature of each number, where settings number columns of a table: the feature of the same name
            for a column, and features themselves

    Raises SettingsError where `missing` names a column without such a feature.
    """
    if places is not None and settings.missing not in MISSING:
        if others := [column for column in numbers(settings.missing) if column not in places]:
            why = "it is a column of categories, of which the features are means of the target"
            raise FeatureError("missing", others[0], why, "Leave it out, or name its features.")
        settings = replace(settings, missing=_text(_placed(settings.missing, places), False))
    if settings.categorical == NONE or (not coded and places is None):
        return settings
    own = _placed(settings.categorical, places)
    text = _text({*own, *coded}, _looks_at_others(settings.categorical)) or AUTO
    return replace(settings, categorical=text)


def named_columns(settings: Settings) -> list[int]:
    """The ascending numbers of the one-hot encoded features of numbered settings."""
    return numbers(settings.categorical)


def _placed(text: str, places: Mapping[int, int] | None) -> list[int]:
    """The features in a numbered text; those of its columns, with `places`."""
    return [f if places is None else places[f] for f in numbers(text) if places is None or f in places]


def _text(features: Iterable[int], of_others: bool) -> str:
    listed = as_text(sorted(features)) if features else ""
    return ",".join([*([AUTO] if of_others else []), *([listed] if listed else [])])


def _looks_at_others(text: str) -> bool:
    return AUTO in {part for part, _ in parts(text)}


def check_present(setting: str, features: Sequence[int], n_features: int) -> None:
    """Raise SettingsError where data lack the last of the ascending features of a setting."""
    if features and features[-1] >= n_features:
        raise _absent(setting, features[-1], n_features)


def _absent(setting: str, feature: int, n_features: int, names: Collection[str] = ()) -> SettingsError:
    own = f', or write "{feature}" in double quotes for the feature of that name'
    return SettingsError(
        f"Cannot use feature {feature} in {setting}: the data have features 0 to {n_features - 1}. Choose"
        f" some of these{own if str(feature) in names else ''}."
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    lower = {one.lower(): one for one in reversed(known)}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f" (did you mean {lower[close[0]]!r}?)" if close else ""


def choose_codes(sample: NDArray[np.generic], settings: Settings) -> dict[int, NDArray[np.generic]]:
    """The features of settings, and the values of each with a column; NaN is a missing value.

    sample  (n, n_features), raw rows

    Raises SettingsError for a feature that cannot be one-hot encoded.
    """
    if settings.categorical == NONE:
        return {}
    text = numbered(settings, None).categorical
    return _named(sample, numbers(text), alone=not _looks_at_others(text))


def most_frequent(column: NDArray[np.generic]) -> float:
    """The value of a one-hot encoded feature without a column."""
    values, counts = _values(column)
    return float(values[counts.argmax()])


def _values(column: NDArray[np.generic]) -> tuple[NDArray[np.generic], IntArray]:
    """The distinct present values of a column, ascending, and their counts."""
    return np.unique(column[~np.isnan(column)] if column.dtype.kind == "f" else column, return_counts=True)


def _named(
    sample: NDArray[np.generic], features: Sequence[int], *, alone: bool
) -> dict[int, NDArray[np.generic]]:
    """The values with a column of named features. Raises SettingsError for a feature that cannot be one-hot
    encoded, and, where it was named `alone`, for a feature with a single category.
    """
    check_present("categorical", features, sample.shape[1])
    codes = {}
    for feature in features:
        values, counts = _values(sample[:, feature])
        wrong = _not_codes(values)
        if wrong:
            raise FeatureError("categorical", feature, wrong, REMEDY)
        if len(own := _with_columns(values, counts)):
            codes[feature] = own
        elif alone and len(features) == 1:  # In a span, some features may be constant in few rows.
            most, others = _number(values[counts.argmax()]), counts.sum() - counts.max()
            but = f", and only {others} in which it is another" if others else ""
            why = f"it is {most} in {counts.max():,} sampled rows{but}, so it has a single category"
            raise FeatureError("categorical", feature, why, REMEDY)
    return codes


def _not_codes(values: NDArray[np.generic]) -> str:
    """Why these distinct values, ascending, are not categories; empty where they are."""
    if not len(values):
        return "it has no value in any sampled row"
    fraction = values[values != np.rint(values)] if values.dtype.kind == "f" else values[:0]
    if len(fraction):
        return f"it holds {fraction[0]:g}, which is not an integer"
    if len(values) > MOST_VALUES:
        return f"it has more than {MOST_VALUES} different values"
    low, high = int(values[0]), int(values[-1])
    reach = f"its values reach from {_number(values[0])} to {_number(values[-1])}"
    if high - low >= WIDEST_RANGE:
        return f"{reach}, more than {WIDEST_RANGE - 1:,} apart"
    if max(-low, high) > LARGEST_CODE:
        return f"{reach}, and codes lie from -{LARGEST_CODE:,} to {LARGEST_CODE:,}"
    return ""


def _number(value: np.generic) -> str:
    """An integer as text, or shortened where it has more digits than its dtype distinguishes."""
    number = int(value)
    return f"{number:,}" if value.dtype.kind != "f" or abs(number) < 2**53 else f"{value:g}"


def code_candidates(sample: NDArray[np.generic], named: set[int], most: int) -> list[int]:
    """The features, ascending, with at most so many distinct values that were not named: those with few
    values come first, up to a limit of columns.
    """
    looked_at = [f for f in range(sample.shape[1]) if f not in named]
    few = {f: values for f in looked_at if (values := _few(sample[:FIRST_ROWS, f])) is not None}
    codes, left = [], MOST_COLUMNS
    for f in sorted(few, key=lambda f: len(few[f])):
        if len(few[f]) - 1 > left:
            break
        values, counts = _values(sample[:, f])
        if not FEWEST_AUTO <= len(values) <= most or _not_codes(values):
            continue
        own = _with_columns(values, counts)
        if 1 < len(own) <= left:
            codes.append(f)
            left -= len(own)
    return sorted(codes)


def _few(column: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """The distinct values of a column, None where they are not categories."""
    values, _ = _values(column)
    return None if _not_codes(values) else values


def _with_columns(values: NDArray[np.generic], counts: IntArray) -> NDArray[np.generic]:
    """The values of a feature that have a column: all but the most frequent one and the rare ones."""
    often = counts >= min(RAREST, counts.max())
    often[counts.argmax()] = False
    kept: NDArray[np.generic] = values[often]
    return kept
