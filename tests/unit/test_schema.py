"""What columns of a table are: how they are encoded, found from values, kept as JSON, and read from hostile
JSON.
"""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dcpred_tasks.errors import DataError
from dcpred_tasks.schema import schema as schema_module
from dcpred_tasks.schema.column import (
    DATE_PARTS,
    Boolean,
    Cells,
    Codes,
    Column,
    Date,
    Dropped,
    Id,
    Means,
    Number,
    Target,
    TargetCodes,
    as_boolean,
    as_date,
    booleans,
    dates,
    is_number,
    levelled,
    numbers,
    texts,
    without,
)
from dcpred_tasks.schema.inference import MOST_CODES, ColumnSurvey, Wishes, as_option, find_column, wishes
from dcpred_tasks.schema.schema import (
    MOST_CATEGORIES,
    TARGET,
    ColumnRequest,
    Schema,
    TextFormat,
    first_difference,
    numbers_schema,
    read_columns,
    read_schema,
)

NAN = math.nan
COLOURS = Codes("colour", ("blue", "red"))
SHOP = TargetCodes("shop", ("a", "b", "c"))
CITY = Means("city", ("oslo", "rome"), ((0.25,), (0.75,), (0.5,), (0.125,)))
SIZES = Codes("size", (1, 2.5, 40))
WHEN = Date("when", DATE_PARTS)
ALL = Schema(
    (Number("age"), Boolean("old"), COLOURS, CITY, SHOP, SIZES, WHEN, Id("id"), Target("y"), Dropped("note")),
    ("?",),
)


def encoded(column: Column, cells: Cells) -> np.ndarray:
    """Rows of features; every column gives float64, and as many of them as it names."""
    found: np.ndarray = column.encode(cells)
    assert found.dtype == np.float64
    assert found.shape == (len(cells), len(column.features))
    return found


def alike(found: object, wanted: object) -> None:
    np.testing.assert_array_equal(np.array(found, float), np.array(wanted, float))


# -- Cells ---------------------------------------------------------------------------------------------------


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-23 * 60, 23 * 60))
def test_a_date_in_any_zone_is_an_instant_in_utc(instant: datetime, minutes: int) -> None:
    there = instant.replace(tzinfo=UTC).astimezone(datetime.now(UTC).tzinfo)
    shifted = (there + timedelta(minutes=minutes)).replace(tzinfo=None)
    sign, off = ("-" if minutes < 0 else "+"), abs(minutes)
    text = f"{shifted.isoformat()}{sign}{off // 60:02d}:{off % 60:02d}"
    assert as_date(text) == np.datetime64(instant)
    assert as_date(f"{instant.isoformat(sep=' ')}Z") == as_date(instant.isoformat()) == np.datetime64(instant)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020",
        "2020-1-1",
        "2020-13-01",
        "2021-02-29",
        "01/02/2020",
        "2020-01-01T25:00",
        "2020-01-01T",
        "now",
        "2020-01-01 10",
        "२०२०-०१-०१",
        "2020-01-01x",
        " 2020-01-01",
        "0000-01-01",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert as_date(text) is None


def test_parts_of_a_second_beyond_microseconds_are_left_off() -> None:
    assert as_date("2020-01-01T00:00:00.123456789Z") == np.datetime64("2020-01-01T00:00:00.123456")


@pytest.mark.parametrize(
    ("text", "number", "boolean"),
    [
        ("1", True, None),
        ("-2.5e3", True, None),
        ("nan", False, None),
        ("inf", False, None),
        ("1_0", False, None),
        ("TRUE", False, 1),
        ("false", False, 0),
        ("yes", False, None),
        ("", False, None),
    ],
)
def test_numbers_and_booleans_of_text(text: str, number: bool, boolean: int | None) -> None:
    assert (is_number(text), as_boolean(text)) == (number, boolean)


def test_texts_that_stand_for_a_gap() -> None:
    cells = without(texts(["a", "?", None, "b", "?"]), ("?", "-"))
    assert cells.gap.tolist() == [False, True, True, False, True]
    alike(COLOURS.encode(without(texts(["?", "red"]), ("?",)))[:, 0], [3, 1])
    assert without(cells, ()) is cells
    same = numbers(np.array([1.0]))
    assert without(same, ("?",)) is same


# -- What columns become -------------------------------------------------------------------------------------


def test_numbers_stay_what_they_are() -> None:
    alike(encoded(Number("a"), numbers(np.array([1.5, NAN, -math.inf]))), [[1.5], [NAN], [-math.inf]])
    alike(encoded(Number("a"), numbers(np.array([7, 8]), np.array([False, True]))), [[7], [NAN]])
    alike(encoded(Number("a"), booleans(np.array([True, False]))), [[1], [0]])
    for cells in (texts(["1"]), dates(np.array(["2020"], "M8[D]"))):
        with pytest.raises(DataError, match=r"column 'a': its schema expects numbers"):
            Number("a").encode(cells)


def test_booleans_are_0_and_1() -> None:
    column = Boolean("b")
    alike(encoded(column, booleans(np.array([True, False]), np.array([False, True]))), [[1], [NAN]])
    alike(encoded(column, texts(["True", None, "FALSE", "1", "0"])), [[1], [NAN], [0], [1], [0]])
    alike(encoded(column, numbers(np.array([1.0, 0, NAN]))), [[1], [0], [NAN]])
    for cells in (texts(["true", "maybe"]), numbers(np.array([0, 2])), dates(np.array(["2020"], "M8[D]"))):
        with pytest.raises(DataError, match=r"column 'b': its schema expects true and false, .*Convert it"):
            column.encode(cells)
    with pytest.raises(DataError, match=r"\('maybe'\)"):
        column.encode(texts(["true", "maybe"]))


def test_codes_are_positions_then_others_then_a_gap() -> None:
    alike(encoded(COLOURS, texts(["red", "blue", "teal", None, ""])), [[1], [0], [2], [3], [2]])
    declared = levelled(np.array([2, 0, -1, 1]), ("red", "pink", "blue"), declared=True)
    alike(encoded(COLOURS, declared), [[0], [1], [3], [2]])


def test_spaces_around_text_do_not_count() -> None:
    """As of CSV with a space after each comma, whatever reads it. Schemas of before may hold such spaces."""
    spaced = levelled(np.array([0, 1, 2, 2]), ("red", " red ", " 2020-01-01"))
    assert surveyed(spaced).counts == {"red": 2, "2020-01-01": 2}
    assert surveyed(spaced).n_dates == 2
    for column in (Codes("colour", ("blue", "red")), Codes("colour", ("blue", " red"))):
        alike(encoded(column, spaced), [[1], [1], [2], [2]])


def test_what_values_are_in_the_table() -> None:
    said = {
        ("size", 0): {1.0: "2.5", 2.0: "40", 3.0: "others", 4.0: "gap", 0.5: None, 9.0: None},
        ("when", 0): {0.0: "1970-01-01", 19064.7: "2022-03-13", -1.0: "1969-12-31", 1e300: None},
        ("when", 1): {3.0: None},
        ("age", 0): {3.0: None},
        ("city", 0): {0.25: None},
    }
    starts = {column.name: span.start for column, span in ALL.spans}
    for (name, part), values in said.items():
        for value, text in values.items():
            assert ALL.says(starts[name] + part, value) == text
    assert ALL.says(starts["size"], None) is None


def test_categories_that_are_numbers_are_met_by_numbers_and_text() -> None:
    wanted = [[0], [1], [2], [3], [4]]
    alike(encoded(SIZES, numbers(np.array([1, 2.5, 40, 7, NAN]))), wanted)
    alike(encoded(SIZES, texts(["1.0", "2.5", "040", "x", None])), wanted)
    alike(encoded(Codes("n", ("1", "2.5")), numbers(np.array([1.0, 2.5, NAN, 3]))), [[0], [1], [3], [2]])
    alike(encoded(Codes("n", ("1", "a")), numbers(np.array([1, 2], np.int8))), [[0], [2]])
    assert len(encoded(SIZES, numbers(np.empty(0)))) == 0
    with pytest.raises(DataError, match=r"column 'size': its schema expects text or numbers"):
        SIZES.encode(dates(np.array(["2020"], "M8[D]")))


def test_means_are_of_the_category_of_others_and_of_a_gap() -> None:
    alike(encoded(CITY, texts(["rome", "paris", None])), [[0.75], [0.5], [0.125]])
    several = Means("c", ("a",), ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)), ("no", "yes"))
    assert several.features == ("c.no", "c.yes")
    alike(encoded(several, texts(["a", "b", None])), [[1, 0], [0.5, 0.5], [0, 1]])


@given(st.lists(st.datetimes(datetime(1583, 1, 1), datetime(9999, 12, 31)) | st.none(), max_size=20))
def test_the_parts_of_dates_are_those_of_the_calendar(instants: list[datetime | None]) -> None:
    wanted = [
        [NAN] * 4
        if one is None
        else [
            one.toordinal() - datetime(1970, 1, 1).toordinal(),
            one.weekday(),
            one.timetuple().tm_yday,
            (one - datetime.combine(one.date(), datetime.min.time())).total_seconds(),
        ]
        for one in instants
    ]
    cells = dates(np.array([np.datetime64("NaT" if one is None else one) for one in instants], "M8[us]"))
    alike(encoded(WHEN, cells), np.reshape(wanted, (-1, 4)))
    as_text = texts([None if one is None else one.isoformat() for one in instants])
    alike(encoded(WHEN, as_text), np.reshape(wanted, (-1, 4)))


def test_some_parts_of_dates() -> None:
    column = Date("d", ("day", "weekday"))
    assert column.features == ("d", "d.weekday")
    alike(encoded(column, dates(np.array(["1969-12-31", "NaT"], "M8[D]"))), [[-1, 2], [NAN, NAN]])
    alike(encoded(column, dates(np.array(["1969-12-31T23:59:59.9"], "M8[ms]"))), [[-1, 2]])
    with pytest.raises(DataError, match=r"column 'd': its schema expects dates \(ISO 8601\), .* \('soon'\)"):
        column.encode(texts(["2020-01-01", "soon"]))
    with pytest.raises(DataError, match=r"it holds numbers \('3'\)"):
        column.encode(numbers(np.array([3])))


@pytest.mark.parametrize("column", [Id("a"), Target("a"), Dropped("a")])
def test_what_is_no_feature(column: Column) -> None:
    assert column.features == ()
    with pytest.raises(TypeError):
        column.encode(texts(["a"]))


# -- The schema ----------------------------------------------------------------------------------------------


def test_features_and_where_they_are() -> None:
    assert ALL.features == (
        *("age", "old", "colour", "city", "shop", "size"),
        *("when", "when.weekday", "when.dayofyear", "when.second"),
    )
    assert ALL.coded == [2, 5]
    assert ALL.target_coded == [4]
    assert ALL.with_means == ["city"]
    assert [(c.name, s.start, s.stop) for c, s in ALL.spans][-2:] == [("size", 5, 6), ("when", 6, 10)]
    assert (ALL.ids, ALL.target) == (("id",), "y")
    assert ALL.encodes
    assert not ALL.plain
    plain = numbers_schema(["a", "b"])
    assert plain.plain
    assert not plain.encodes
    assert plain.target is None
    assert not Schema((Boolean("a"),)).encodes


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([Number("a"), Codes("a", ())], "two columns are called 'a'"),
        ([Date("a", DATE_PARTS), Number("a.weekday")], "two features are called 'a.weekday'"),
        ([Target("y"), Id("i")], "no column becomes a feature"),
        ([Number("a"), Target("b"), Target("c")], "two columns are targets"),
    ],
)
def test_columns_that_cannot_be_those_of_one_table(columns: list[Column], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Schema(tuple(columns))


def test_json_in_both_directions() -> None:
    document = json.loads(json.dumps(ALL.document()))
    assert read_schema(document, "x") == ALL
    assert read_schema(numbers_schema(["ä", "b"]).document(), "x") == numbers_schema(["ä", "b"])
    several = Schema((Means("c", ("a",), ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)), ("no", "yes")),))
    assert read_schema(json.loads(json.dumps(several.document())), "x") == several


levels = st.lists(st.text(max_size=5), unique=True, max_size=5) | st.lists(
    st.integers(-9, 9) | st.floats(-9, 9).filter(lambda x: not x.is_integer()), unique=True, max_size=5
)
some_columns = st.one_of(
    st.builds(Number, st.text(max_size=4)),
    st.builds(Boolean, st.text(max_size=4)),
    st.builds(lambda n, c: Codes(n, tuple(c)), st.text(max_size=4), levels),
    st.builds(lambda n, c: Means(n, tuple(c), ((0.5,),) * (len(c) + 2)), st.text(max_size=4), levels),
    st.builds(
        lambda n, z: Date(n, DATE_PARTS[:3], z), st.text(max_size=4), st.sampled_from([None, True, False])
    ),
    st.builds(Id, st.text(max_size=4)),
)


@given(st.lists(some_columns, min_size=1, max_size=6))
def test_every_schema_comes_back_from_its_json(columns: list[Column]) -> None:
    try:
        schema = Schema(tuple(columns))
    except ValueError:
        return
    assert read_schema(json.loads(json.dumps(schema.document())), "x") == schema


NUMBER = {"name": "a", "kind": "number"}
CODES = {"name": "a", "kind": "category", "encoding": "codes"}
MEAN = {"name": "a", "kind": "category", "encoding": "means", "categories": ["x"]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "None is not a JSON object"),
        ([], "not a JSON object"),
        ({"version": 1}, "lacks 'columns'"),
        ({"version": 2, "columns": []}, "its version is 2, and this dcpred reads 1"),
        ({"version": True, "columns": []}, "its version is True"),
        ({"version": 1, "columns": [NUMBER], "more": 1}, "'more' is not a field of a schema"),
        ({"version": 1, "columns": {}}, "is not a list"),
        ({"version": 1, "columns": []}, "no column becomes a feature"),
        ({"version": 1, "columns": [3]}, "3 is not a JSON object"),
        ({"version": 1, "columns": [{"name": "a"}]}, "lacks 'kind'"),
        (
            {"version": 1, "columns": [{"name": 3, "kind": "number"}]},
            "the name of a column is 3, not text",
        ),
        ({"version": 1, "columns": [{"name": "a", "kind": "text"}]}, "the kind of column 'a' is 'text'"),
        ({"version": 1, "columns": [{"name": "a", "kind": []}]}, "the kind of column 'a' is a list"),
        (
            {"version": 1, "columns": [NUMBER | {"parts": []}]},
            "column 'a', a number, has the unknown field 'parts'",
        ),
        ({"version": 1, "columns": [NUMBER, NUMBER]}, "two columns are called 'a'"),
        ({"version": 1, "columns": [NUMBER | {"name": "x" * 5000}]}, "has 5,000 characters"),
        ({"version": 1, "columns": [NUMBER | {"name": "\ud800"}]}, "surrogates not allowed"),
        ({"version": 1, "columns": [NUMBER], "gap_texts": [1]}, "a text of a missing value is 1, not text"),
        ({"version": 1, "columns": [CODES | {"categories": ["x", 1]}]}, "are text and numbers"),
        ({"version": 1, "columns": [CODES | {"categories": ["x", "x"]}]}, "two category of column 'a's"),
        ({"version": 1, "columns": [CODES | {"categories": [NAN]}]}, "nan is not a finite number"),
        ({"version": 1, "columns": [CODES | {"categories": [10**400]}]}, "is not a finite number"),
        ({"version": 1, "columns": [CODES | {"categories": [True]}]}, "True is not a finite number"),
        ({"version": 1, "columns": [CODES | {"categories": [[]]}]}, "is not a finite number"),
        (
            {"version": 1, "columns": [CODES | {"categories": list(range(300))}]},
            "300 categories, more than the limit",
        ),
        ({"version": 1, "columns": [CODES | {"encoding": "hash"}]}, "neither codes nor target"),
        ({"version": 1, "columns": [CODES | {"categories": [], "means": []}]}, "is not a field of a schema"),
        ({"version": 1, "columns": [CODES]}, "column 'a' states only its kind"),
        ({"version": 1, "columns": [{"name": "a", "kind": "date"}]}, "column 'a' states only its kind"),
        ({"version": 1, "columns": [MEAN | {"means": [[0.5]]}]}, "lacks a mean for a category"),
        ({"version": 1, "columns": [MEAN | {"means": [[0.5]] * 2 + [[]]}]}, "lacks a mean for a category"),
        ({"version": 1, "columns": [MEAN | {"means": [[0.5]] * 2 + [["x"]]}]}, "'x' is not a finite number"),
        ({"version": 1, "columns": [MEAN | {"means": [[0.5, 1]] * 3}]}, "2 means, more than the limit of 1"),
        ({"version": 1, "columns": [{"name": "a", "kind": "date", "parts": ["weekday", "day"]}]}, "in order"),
        ({"version": 1, "columns": [{"name": "a", "kind": "date", "parts": []}]}, "parts of column 'a'"),
        ({"version": 1, "columns": [{"name": "a", "kind": "date", "parts": ["year"]}]}, "parts of column"),
        ({"version": 1, "columns": [{"name": "a", "kind": "date", "parts": [["day"]]}]}, "parts of column"),
    ],
)
def test_json_that_is_no_schema(value: object, why: str) -> None:
    with pytest.raises(DataError) as caught:
        read_schema(value, "here")
    message = str(caught.value)
    assert why in message
    assert message.startswith("Cannot use the schema of here: ")
    assert message.count("\n") == 0
    assert len(message) < 400


def test_json_of_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_module, "MOST_COLUMNS", 1)
    monkeypatch.setattr(schema_module, "MOST_NUMBERS", 2)
    with pytest.raises(DataError, match="it has 2 columns, more than the limit of 1"):
        read_schema(numbers_schema(["a", "b"]).document(), "x")
    with pytest.raises(DataError, match="it has 3 means, more than the limit of 2"):
        read_schema({"version": 1, "columns": [MEAN | {"means": [[0.5]] * 3}]}, "x")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["name", "kind", "encoding", "categories", "means", "outputs", "parts", "x"]),
        anything
        | st.sampled_from(["category", "date", "codes", "means", "number"])
        | st.just(["day"])
        | st.just([[0.5]] * 3),
    ),
    anything,
)
@example({"name": "a", "kind": {}}, [])
@example({"name": "a", "kind": "category", "encoding": ["day"]}, None)
def test_any_json_is_read_or_refused(column: dict[str, Any], gaps: object) -> None:
    for value in ({"version": 1, "columns": [column], "gap_texts": gaps}, column, [column]):
        try:
            columns, *_ = read_columns(value, "x")
        except DataError:
            continue
        assert all(isinstance(one, Column | ColumnRequest) for one in columns)


def test_a_schema_by_hand_may_leave_things_to_find() -> None:
    columns, gaps, text = read_columns(
        {
            "version": 1,
            "columns": [
                {"name": "a", "kind": "category"},
                {"name": "c", "kind": "date"},
                {"name": "d", "kind": "category", "encoding": "means"},
            ],
            "gap_texts": ["?"],
        },
        "x",
    )
    assert columns == [
        ColumnRequest("a", "category"),
        ColumnRequest("c", "date"),
        ColumnRequest("d", "category", TARGET),
    ]
    assert gaps == ("?",)
    assert text == TextFormat()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (COLOURS, None),
        (Codes("colour", ("blue", "red", "teal")), "column 'colour' has other categories ('blue')"),
        (Codes("colour", ("blue", "pink")), "categories ('red')"),
        (Means("colour", (), ((0.0,), (0.0,))), "is a category as codes, not a category as means"),
        (Number("colour"), "column 'colour' is a category as codes, not a number"),
        (Number("color"), "column 'colour' in place of 'color'"),
    ],
)
def test_what_differs(other: Column, difference: str | None) -> None:
    found = first_difference(Schema((Number("a"), COLOURS, Id("i"))), Schema((Boolean("a"), other)))
    assert found is None if difference is None else difference in str(found)
    assert (
        first_difference(Schema((Number("a"),)), Schema((Number("a"), COLOURS))) == "1 columns in place of 2"
    )
    assert first_difference(Schema((CITY,)), Schema((Means("city", (), ((0.0,), (0.0,))),)))
    zoned, local = (Schema((Date("when", DATE_PARTS, one),)) for one in (True, False))
    assert first_difference(zoned, local) == "column 'when' has times with a time zone"
    assert first_difference(local, zoned) == "column 'when' has times without a time zone"
    assert first_difference(local, Schema((WHEN,))) is None, "of an earlier version, which kept no zone"
    assert first_difference(Schema((WHEN,)), Schema((Date("when", ("day",)),))) == (
        "column 'when' has another form"
    )


# -- What a column is, from its values -----------------------------------------------------------------------


def surveyed(*parts: Cells, **options: Any) -> ColumnSurvey:
    survey = ColumnSurvey("a", **options)
    for cells in parts:
        survey.add(cells)
    return survey


def found(cells: Cells, wish: ColumnRequest | None = None) -> Column:
    return find_column(surveyed(cells), wish, source="f")


cells_of_any_kind = st.one_of(
    st.lists(
        st.sampled_from(["a", "b", "1", "2.5", "2020-01-01", "true", "2020-01-01T10:00"]) | st.none()
    ).map(texts),
    st.lists(st.floats(allow_infinity=False, width=32)).map(lambda v: numbers(np.array(v, float))),
    st.lists(st.booleans()).map(lambda v: booleans(np.array(v, bool))),
    st.lists(st.integers(-(10**5), 10**5)).map(lambda v: dates(np.array(v, "M8[m]"))),
)


@given(st.lists(cells_of_any_kind, max_size=4))
def test_surveys_of_parts_join_to_that_of_the_whole(parts: list[Cells]) -> None:
    whole, joined = surveyed(*parts), ColumnSurvey("a")
    for part in parts:
        joined.join(surveyed(part))
    assert vars(joined) == vars(whole)


def test_a_survey_counts_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred_tasks.schema.inference.MOST_LEVELS", 3)
    survey = surveyed(texts(["a", "b"]), texts(["b", "c"]))
    assert survey.counts == {"a": 1, "b": 2, "c": 1}
    survey.add(texts(["d"]))
    survey.add(texts(["a"]))
    assert survey.too_many
    assert not survey.counts
    joined = surveyed(texts(["a", "b"]))
    joined.join(surveyed(texts(["c", "d"])))
    assert joined.too_many
    assert not joined.counts
    monkeypatch.setattr("dcpred_tasks.schema.inference.MOST_LETTERS", 2)
    assert surveyed(texts(["abc"])).too_long


def many(prefix: str, n: int, times: int) -> Cells:
    return texts([f"{prefix}{i % n}" for i in range(n * times)])


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        (numbers(np.array([1.0, NAN])), Number("a")),
        (numbers(np.full(3, NAN)), Number("a")),
        (booleans(np.array([True])), Boolean("a")),
        (texts(["True", "FALSE", None]), Boolean("a")),
        (texts(["2020-01-01", None]), Date("a", DATE_PARTS[:3], False)),
        (texts(["2020-01-01", "2020-01-01T10:00"]), Date("a", DATE_PARTS, False)),
        (texts(["2020-01-01T10:00Z", "2020-01-01 10:00:01.5-03"]), Date("a", DATE_PARTS, True)),
        (texts(["2020-01-01T10:00Z", "2020-01-01"]), Date("a", DATE_PARTS)),
        (dates(np.array(["2020-01-01T00:01"], "M8[m]"), True), Date("a", DATE_PARTS, True)),
        (dates(np.array(["2020-01-01T00:00"], "M8[m]")), Date("a", DATE_PARTS[:3])),
        (dates(np.array(["2020-01-01T00:01"], "M8[m]")), Date("a", DATE_PARTS)),
        (texts(["b", "a", None]), Codes("a", ("a", "b"))),
        (texts(["yes", "no"]), Codes("a", ("no", "yes"))),
        (texts(["18-24", "25-34"]), Codes("a", ("18-24", "25-34"))),
        (texts(["B12", "3a", "x1"]), Codes("a", ("3a", "B12", "x1"))),
        (texts(["10", "9"]), Codes("a", (9, 10))),
        (texts(["10", "9", "01"]), Codes("a", ("01", "10", "9"))),
        (levelled(np.array([0, 1]), (2, 10), declared=True), Codes("a", (2, 10))),
        (levelled(np.array([0, -1]), ("true", "x"), declared=True), Codes("a", ("true",))),
        (many("c", MOST_CODES, 2), Codes("a", tuple(sorted(f"c{i}" for i in range(MOST_CODES))))),
        (
            many("c", MOST_CODES + 1, 20),
            TargetCodes("a", tuple(sorted(f"c{i}" for i in range(MOST_CODES + 1)))),
        ),
    ],
)
def test_what_values_say(cells: Cells, column: Column) -> None:
    assert found(cells) == column


def test_rare_categories_are_as_those_that_are_not_known() -> None:
    assert found(texts(["a"] * 30 + ["b"] * 10 + ["c"] * 9)) == Codes("a", ("a", "b"))
    assert found(texts(["a"] * 4 + ["b"] * 4 + ["c"] * 3)) == Codes("a", ("a", "b")), (
        "few rows have no rare ones"
    )
    survey = surveyed(texts(["a"] * 300 + ["b"] * 30 + ["c"] * 29))
    survey.n_rows = 300_000
    assert find_column(survey, None, source="f") == Codes("a", ("a", "b"))


def test_few_categories_and_a_tail_are_codes() -> None:
    tail = [f"t{i}" for i in range(100)]
    head = [f"h{i % 60}" for i in range(9_900)]
    assert found(texts(head + tail)) == Codes("a", tuple(sorted({*head})))
    assert isinstance(found(texts(head + tail + ["t100"])), TargetCodes)


def test_categories_that_were_named_get_codes_however_many_they_are() -> None:
    wish = ColumnRequest("a", "category", "codes")
    column = found(texts([f"c{i:03d}" for i in range(400) for _ in range(10 + (i < 5))]), wish)
    assert isinstance(column, Codes)
    assert len(column.categories) == MOST_CATEGORIES
    assert column.categories[:5] == ("c000", "c001", "c002", "c003", "c004")
    survey = surveyed(numbers(np.array([3, 1, 3, NAN])), counts_numbers=True)
    assert find_column(survey, wish, source="f") == Codes("a", (3,))
    assert found(texts(["1", "x"] * 10), wish) == Codes("a", ("1", "x"))
    assert found(texts(["b", "a", "b"]), ColumnRequest("a", "category", TARGET)) == TargetCodes(
        "a", ("a", "b")
    )
    assert found(texts(["a", "b"]), ColumnRequest("a", "category")) == Codes("a", ("a", "b"))


@pytest.mark.parametrize(
    ("cells", "wish", "words"),
    [
        (
            texts(["1", "2", "x"]),
            None,
            ["numbers in most rows", "'x' in row 2", "--gap 'x'", "--categorical a"],
        ),
        (texts(["2020-01-01", "x"]), None, ["dates in most rows", "'x' in row 1"]),
        (texts([f"{i}" for i in range(MOST_CODES + 1)]), None, ["numbers as text", "Make them numbers"]),
        (many("t", 100, 1), None, ["100 different values in 100 rows", "--id a", "--drop a"]),
        (many("1.1.2", 100, 2), None, ["'1.1.20' are ambiguous", "2024-12-31"]),
        (texts(["31.12.2020", "1.1.2021", "?"]), None, ["'31.12.2020' are ambiguous", "--drop a"]),
        (texts(["1,5", "2,5"]), None, ["numbers with signs or separators ('1,5')", "1234.5"]),
        (texts(["50%", "7 %", "x"]), None, ["('50%')"]),
        (texts(["$3,400", "12", None]), None, ["('$3,400')", "--categorical a"]),
        (texts(["5", "1.000.000"]), None, ["('1.000.000')"]),
        (texts(["x"]), ColumnRequest("a", "date"), ["as dates", "'x'", "ISO 8601"]),
        (numbers(np.array([3])), ColumnRequest("a", "date"), ["as dates", "'3'"]),
        (
            dates(np.array(["2020-01-01"], "M8[D]")),
            ColumnRequest("a", "category"),
            ["categories", "it holds dates ("],
        ),
    ],
)
def test_what_cannot_be_told(cells: Cells, wish: ColumnRequest | None, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        found(cells, wish)
    for word in ["column 'a' of f", *words]:
        assert word in str(caught.value)


def test_several_kinds_in_one_column() -> None:
    survey = surveyed(numbers(np.array([3.0])), texts(["x"]))
    with pytest.raises(DataError, match=r"holds numbers \('3\.0'\) and text \('x'\)\. Make it one"):
        find_column(survey, None, source="f")
    declared = surveyed(texts(["x"]), levelled(np.array([0]), ("y",), declared=True))
    assert find_column(declared, None, source="f") == Codes("a", ("x", "y"))


def test_what_has_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred_tasks.schema.inference.MOST_LEVELS", 3)
    for wish in (None, ColumnRequest("a", "category", "codes")):
        with pytest.raises(DataError, match=r"as categories: it holds more than 3 different values\. Keep"):
            found(texts(list("abcd")), wish)
    monkeypatch.setattr("dcpred_tasks.schema.inference.MOST_LETTERS", 2)
    with pytest.raises(DataError, match=r"as categories: it holds texts of more than 2 characters"):
        found(texts(["abc"]))


@pytest.mark.parametrize(
    ("name", "option"), [("a", "a"), ("a b", "'a b'"), ("a, b", "'\"a, b\"'"), ("it's", "'it'\"'\"'s'")]
)
def test_names_as_a_shell_takes_them(name: str, option: str) -> None:
    assert as_option(name) == option


def test_a_column_is_named_for_one_thing() -> None:
    asked = wishes(
        "y", ("a",), ("b",), ("c",), {"a": ColumnRequest("a", "category", "codes"), "d": Number("d")}, ("?",)
    )
    assert asked.of("y") == Target("y")
    assert asked.of("d") == Number("d")
    assert asked.of("e") is None
    assert asked.gap_texts == ("?",)
    assert wishes(given={"t": Target("t")}).target == "t"
    assert Wishes().of("a") is None
    with pytest.raises(DataError, match="column 'a' as category and as dropped"):
        wishes(categorical=("a",), drop=("a",))
    with pytest.raises(DataError, match="column 'a' as id and as target"):
        wishes("a", ids=("a",))
