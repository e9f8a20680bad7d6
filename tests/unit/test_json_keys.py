"""Each JSON key has a meaning, and each meaning a key. The build of the site checks its own examples."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Context

pytest.importorskip("numpydoc", reason='the page needs the extra "docs"')
DOCS = Path(__file__).parents[2] / "pipeline/docs"
sys.path.append(str(DOCS))

import json_keys  # noqa: E402 - it lies beside the pages

from dcpred.cli import main  # noqa: E402
from dcpred_tasks.result_fields import Key  # noqa: E402

Known = dict[str, json_keys.Keys]
# Commands with options and data that the page does not use, by the titles of its sections.
MORE = (
    ("dcpred train", "train known.zarr model --set n_leaves=2 --set keep_support_vectors=true"),
    (
        "dcpred train",
        "train odd.zarr prices --set task=regression --set n_leaves=1 --set keep_support_vectors=true",
    ),
    ("dcpred train", "train odd.zarr grown --set task=regression --set n_leaves=1 --set trees=2"),
    (
        "dcpred evaluate, classification",
        "evaluate model known.zarr --early --metric roc_auc --threshold cost=50",
    ),
    ("dcpred evaluate, regression", "evaluate prices odd.zarr --early --metric r2"),
    ("dcpred import", "import shifted.csv shifted.zarr --like prices"),
    ("dcpred evaluate, regression", "evaluate prices shifted.zarr"),
    ("dcpred inspect of a model", "inspect model"),
    ("dcpred inspect of a model", "inspect prices"),
    ("dcpred inspect of a model", "inspect grown"),
    ("dcpred inspect of a data set", "inspect odd.zarr"),
    ("dcpred score", "score prices odd.zarr scores --outputs decision,interval"),
    ("dcpred explain", "explain prices odd.zarr --rows 1 --landmarks"),
    ("dcpred refresh", "refresh prices odd.zarr nightly --ignore-drift day --max-drift 9"),
)
OPTIONAL_DOCUMENTS = (  # All of their optional keys are printed below.
    *("dcpred evaluate, classification", "dcpred evaluate, regression", "dcpred inspect of a model"),
    *("Drift", "Schema", "Missing values of a training"),
)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    """What the commands print, with its meanings."""
    with json_keys.small(tmp_path_factory.mktemp("keys")):
        json_keys.document("example")
        lines = [line.split(",") for line in Path("known.csv").read_text().splitlines()]
        odd = [[*lines[0][:3], "day", "town", "street", "label"]]
        for number, line in enumerate(lines[1:]):
            gap = "unknown" if number % 7 == 0 else line[2]
            town = f"town-{number % 40}" if number % 2 else "home"
            street = f"street-{number % 70}"
            odd.append([line[0], line[1], gap, f"2024-0{number % 9 + 1}-11", town, street, line[-1]])
        Path("odd.csv").write_text("\n".join(map(",".join, odd)) + "\n")
        json_keys.document("import known.csv known.zarr --target label --id id")
        json_keys.document(
            "import odd.csv odd.zarr --target mean_radius --id id --gap unknown --categorical town"
        )
        labels = [row[-1] for row in odd[1:]]
        moved = zip(odd[1:], labels[1:] + labels[:1], strict=True)
        shifted = [odd[0], *([*row[:-1], label] for row, label in moved)]
        Path("shifted.csv").write_text("\n".join(map(",".join, shifted)) + "\n")
        found = json_keys.known_keys()
        for title, command in MORE:
            found[title].add(json_keys.document(command))
        yield found


def test_every_printed_key_has_a_meaning(printed: Known) -> None:
    wrong = [line for title, keys in printed.items() for line in keys.check(title)]
    assert [line for line in wrong if "does not print" not in line] == []


def test_every_optional_key_is_printed(printed: Known) -> None:
    for title in OPTIONAL_DOCUMENTS:
        keys = printed[title]
        optional = {name for name, key in keys.known.items() if key.is_optional}
        assert optional - keys.types.keys() <= {"beyond_float64", "provenance.arithmetic"}, title


def test_keys_and_meanings_that_differ_are_found() -> None:
    texts = {"a": "A.", "b": "B.", "c": "With c.", "d": "D.", "e": "E by f."}
    keys = json_keys.Keys({name: Key(text, name == "c", None) for name, text in texts.items()}, {})
    keys.add({"a": 1, "d": {"x": 1}, "e": {"x": 1}, "new": None})
    found = list(keys.check("dcpred x"))
    assert [line.partition(":")[0] for line in found] == [
        "dcpred x",
        "dcpred x prints new",
        "dcpred x does not print b",
    ]
    assert found[0] == "dcpred x: describe the keys of d, or by what it lists"


def test_a_key_leads_to_the_section_of_its_object_where_the_page_has_one() -> None:
    keys = json_keys.known_keys()
    train, feature_map = keys["dcpred train"], keys["Feature map"]
    [line] = [row for row in train.rows() if row.startswith("| `feature_map`")]
    assert "#feature-map" not in line
    train.add({"feature_map": {"name": "clip", "features": [1], "knots": None}})
    assert feature_map.types.keys() == feature_map.known.keys()
    [line] = [row for row in train.rows() if row.startswith("| `feature_map`")]
    assert line.endswith("See [Feature map](#feature-map). |\n")


def test_every_command_has_a_section() -> None:
    titles = [one.title for one in json_keys.SECTIONS if one.title.startswith("dcpred ")]
    assert {title.split(",")[0].split()[1] for title in titles} == set(main.list_commands(Context(main)))


def test_meanings_are_short_sentences() -> None:
    texts = {key.meaning for section in json_keys.SECTIONS for key in section.known().values()}
    assert [text for text in texts if not text.endswith(".")] == []
