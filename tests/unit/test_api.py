"""The public functions: they agree with the commands, take data in every form, and are documented."""

import asyncio
import inspect
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from email.message import Message
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate as problems
from zarr.storage import MemoryStore

import dcpred
from dcpred.cli import main
from dcpred.public.results import PublicResult
from dcpred_tasks.errors import DataError, DcpredError, IncompleteError, SchedulerError, SettingsError
from dcpred_tasks.result_fields import ABSENT, type_text
from dcpred_tasks.storage.addressed_arrays import open_group
from support.data import make_blobs, make_group
from support.stores import StoreServer, used

pytestmark = pytest.mark.cases()  # what is enumerated may grow

SETTINGS = {"n_leaves": 1, "landmarks": 4}
BLOBS = make_blobs(300, n_features=4, n_classes=2, seed=0)
KEYS = {"settings": SETTINGS}

# -- the commands --------------------------------------------------------------------------------------------

# Options without a parameter: how to print, monitor and connect.
SHELL = {
    "as_json",
    "quiet",
    "verbose",
    "metrics",
    "events",
    "notify",
    "storage_option",
    "config",
    "dashboard",
}
SHELL |= {"scheduler", "tls_ca_file", "tls_cert", "tls_key"}
PYTHON = {
    "client",
    "verbose",
    "storage_options",
    "progress",
    "ids",
    "gaps",
}  # and parameters without an option
OTHER_NAMES = {"assignments": "settings", "no_cost": "cost", "file": "costs", "fail_on": "on_alarm"}
# Options that choose another function, or arguments that it has.
OTHER_FUNCTIONS = {
    "score": {"mend", "level"},
    "refresh": {"publish_run", "places"},
    "report": {"out"},
    "import": {"show_schema"},
}
NAMES = ["train", "tune", "score", "evaluate", "verify", "refresh", "status", "export", "split", "explain"]
NAMES += ["compare", "report", "validate", "import"]


def options_of(name: str) -> dict[str, Any]:
    """Default values of a command by the names of parameters."""
    ctx = click.Context(main)
    command = main.get_command(ctx, name)
    assert command is not None
    left_out = SHELL | OTHER_FUNCTIONS.get(name, set())
    found = {str(p.name): p for p in command.params if p.name not in left_out}
    return {OTHER_NAMES.get(n, n): p.get_default(ctx) for n, p in found.items()}


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    found = inspect.signature(function).parameters
    return {name: one.default for name, one in found.items() if name not in PYTHON}


def plain(value: Any) -> Any:
    """A default value: without one, and where nothing is given, None."""
    empty = value is inspect.Parameter.empty or value is None or value in ((), False)
    return None if empty or "UNSET" in repr(value) else value


@pytest.mark.parametrize("name", NAMES)
def test_options_and_parameters_agree(name: str) -> None:
    function = dcpred.import_data if name == "import" else getattr(dcpred, name)
    options, parameters = options_of(name), parameters_of(function)
    if name == "refresh":
        options |= dict.fromkeys(("model", "data", "root"))
    if name == "explain":
        options["X"] = options.pop("data")
    assert options.keys() == parameters.keys()
    if name == "evaluate":
        assert (options.pop("cost"), parameters.pop("cost")) == (False, True)
    if "on_alarm" in options:
        assert (plain(options.pop("on_alarm")), parameters.pop("on_alarm")) == (None, "warn")
    assert {n: plain(v) for n, v in options.items()} == {n: plain(v) for n, v in parameters.items()}


def test_repair_takes_what_score_takes() -> None:
    own, of_score = parameters_of(dcpred.repair), parameters_of(dcpred.score)
    assert of_score.pop("shard") is None
    assert own.pop("level") == "full"
    assert own == of_score


def test_every_function_takes_a_client_or_none() -> None:
    """Both, or neither: in the order of the commands' help."""
    for name in dcpred.__all__:
        if inspect.isfunction(one := getattr(dcpred, name)):
            known = list(inspect.signature(one).parameters)
            assert ("client" in known) == ("workers" in known), name


# -- data, and workers ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its data, and the scores of a run."""
    folder = tmp_path_factory.mktemp("api")
    data = make_group(folder / "data.zarr", BLOBS.X, BLOBS.y, chunk_rows=100)
    dcpred.train(data, folder / "model", settings=SETTINGS)
    dcpred.score(folder / "model", data, folder / "scores")
    return folder


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of a cluster in this process: nothing has to start."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def labels(folder: Path, name: str) -> Any:
    return zarr.open_group(folder / name / "scores.zarr")["label"][:]


def in_memory(X: Any) -> zarr.Array[Any]:
    array = zarr.create_array(MemoryStore(), shape=X.shape, dtype=X.dtype)
    array[:] = X
    return array


FORMS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda X: X,
    "pandas": pd.DataFrame,
    "dask": lambda X: da.from_array(X, chunks=(70, -1)),
    "xarray": lambda X: xr.DataArray(X, dims=("sample", "feature")),
    "lazy xarray": lambda X: xr.DataArray(da.from_array(X, chunks=(70, 2)), dims=("sample", "feature")),
    "zarr in memory": in_memory,
}


@pytest.mark.parametrize("form", FORMS)
def test_scores_of_rows_in_any_form(form: str, folder: Path, client: Client) -> None:
    """Equal to those of the stored rows; the same call again scores nothing, and other rows are refused."""
    rows, out = FORMS[form](BLOBS.X), folder / f"of {form}"
    report = dcpred.score(dcpred.load_model(folder / "model"), rows, out, client=client)
    assert isinstance(report, dcpred.ScoreReport)
    assert report.scored_blocks == report.n_blocks
    assert (labels(folder, out.name) == labels(folder, "scores")).all()
    assert dcpred.verify(out, client=client).ok
    again = dcpred.score(folder / "model", rows, out, client=client)
    assert isinstance(again, dcpred.ScoreReport)
    assert again.scored_blocks == 0
    with pytest.raises(
        DataError, match=r"holds another X, from an earlier call with this output\. Remove it"
    ):
        dcpred.score(folder / "model", FORMS[form](BLOBS.X + 1), out, client=client)
    assert client.status == "running"


def test_arrays_of_zarr_are_read_where_they_lie(folder: Path) -> None:
    group = zarr.open_group(folder / "data.zarr", mode="r")
    for name, data in {"group": group, "array": group["X"]}.items():
        dcpred.score(folder / "model", data, folder / name)
        assert (labels(folder, name) == labels(folder, "scores")).all()
        assert not (folder / f"{name}.data.zarr").exists()
    for y in (group["y"], BLOBS.y):  # the second alone is written
        found = dcpred.evaluate(folder / "model", group["X"], y=y, cost=False)
        assert found.accuracy > 0.9
        assert found.data == str(folder / "data.zarr" / "X")
    assert dcpred.refresh(folder / "model", group, folder / "of a group").state == "published"


def test_columns_of_a_frame_in_another_order(tmp_path: Path) -> None:
    """The model brings them into its order; text is refused with the function that encodes it."""
    names = ["ash", "elm", "oak", "yew"]
    frame, target = pd.DataFrame(BLOBS.X, columns=names), pd.Series(BLOBS.y).map({0: "a", 1: "b"})
    model = dcpred.train(frame, tmp_path / "model", y=target, **KEYS).model
    assert list(dcpred.load_model(model).classes_) == ["a", "b"]
    dcpred.score(model, frame, tmp_path / "first")
    dcpred.score(model, frame[names[::-1]], tmp_path / "second")
    assert (labels(tmp_path, "first") == labels(tmp_path, "second")).all()
    with pytest.raises(DataError, match=r"a column holds text.* Write it by dcpred\.import_data"):
        dcpred.score(model, frame.assign(ash="x"), tmp_path / "third")
    assert not (tmp_path / "third").exists()
    assert not (tmp_path / "third.data.zarr").exists()


def test_a_training_of_rows_resumes(tmp_path: Path, client: Client) -> None:
    """The second call finds the rows of the first one; without settings it reports the search."""
    rows = da.from_array(BLOBS.X, chunks=(70, -1)), da.from_array(BLOBS.y, chunks=70)
    first = dcpred.train(rows[0], tmp_path / "model", y=rows[1], client=client, **KEYS)
    again = dcpred.train(rows[0], tmp_path / "model", y=rows[1], client=client, **KEYS)
    assert isinstance(first, dcpred.TrainReport)
    assert isinstance(again, dcpred.TrainReport)
    assert again.already_trained
    assert again.hash == first.hash
    assert first.predicted_cost is not None
    assert first.predicted_cost["cost_ratio"] > 1
    weight = np.ones(len(BLOBS.y))
    found = dcpred.validate(BLOBS.X, y=BLOBS.y, sample_weight=weight, folds=2, **KEYS)
    assert len(found.folds) == 2
    assert found.mean > 0.9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "Cannot use workers=0: it is not a number of local processes."),
        ({"workers": True}, "Cannot use workers=True: it is of type bool. Pass an integer or None."),
        (
            {"client": 5},
            "Cannot use a value of type int as client: it is not a connection to a Dask cluster.",
        ),
        ({"client": "nowhere"}, "Cannot use 'nowhere' as a Dask scheduler: it is not an address."),
        (
            {"client": "tcp://h:1", "workers": 2},
            "Cannot combine workers with client: one excludes the other.",
        ),
    ],
)
def test_wrong_workers_are_refused(given: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises((SettingsError, SchedulerError)) as raised:
        dcpred.verify(folder / "scores", **given)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("score", {"outputs": "label"}, "'label': it is of type str. Pass a list, each a str or None."),
        ("score", {"outputs": 3}, "3: it is of type int. Pass a list, each a str or None."),
        ("score", {"max_failures": "x"}, "'x': it is of type str. Pass an integer."),
        ("score", {"max_bad_fraction": "x"}, "'x': it is of type str. Pass a number or None."),
        ("score", {"quarantine": "yes"}, "'yes': it is of type str. Pass True or False."),
        ("refresh", {"max_drift": "x"}, "'x': it is of type str. Pass a number or None."),
        ("export", {"columns": [1]}, "[1]: it is of type list. Pass a list, each a str or None."),
        ("verify", {"seed": "x"}, "'x': it is of type str. Pass an integer or None."),
    ],
)
def test_arguments_of_another_type(name: str, given: dict[str, Any], message: str, tmp_path: Path) -> None:
    """One sentence each, before anything is read or written."""
    places = {"score": 3, "refresh": 3, "export": 2, "verify": 1}[name]
    with pytest.raises(SettingsError) as raised:
        getattr(dcpred, name)(*[tmp_path / "nowhere"] * places, **given)
    assert str(raised.value) == f"Cannot use {next(iter(given))}={message}"


def test_arrays_that_do_not_belong_together_are_not_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Cannot use y with X: it has 10 rows, X has"):
        dcpred.train(BLOBS.X, tmp_path / "m", y=BLOBS.y[:10], settings=SETTINGS)
    for call in (dcpred.score, dcpred.train):
        with pytest.raises(DataError, match="Cannot use None as data"):
            call(
                folder / "model" if call is dcpred.score else None,
                *([None] * (call is dcpred.score)),
                tmp_path / "m",
            )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["float", "text", "frame", "list", "masked"])
def test_rows_in_memory_without_a_target(kind: str, folder: Path) -> None:
    """They are counted and skipped on request; else the error names the first, and the argument."""
    lacking = np.arange(len(BLOBS.y)) % 30 == 7
    y: Any = {
        "float": np.where(lacking, np.nan, BLOBS.y.astype(float)),
        "text": np.where(lacking, None, BLOBS.y.astype(object)),
        "frame": pd.Series(BLOBS.y, dtype="Int64").mask(lacking),
        "list": [None if gone else int(one) for gone, one in zip(lacking, BLOBS.y, strict=True)],
        "masked": np.ma.masked_array(BLOBS.y, lacking),
    }[kind]
    found = dcpred.evaluate(folder / "model", BLOBS.X, y=y, drop_unlabelled=True, cost=False)
    assert (found.n_unlabelled, found.n_samples) == (lacking.sum(), (~lacking).sum())
    same = dcpred.evaluate(folder / "model", BLOBS.X[~lacking], y=BLOBS.y[~lacking], cost=False)
    assert found.accuracy == same.accuracy
    with pytest.raises(DataError, match=r"^Cannot evaluate row 7 of .*drop_unlabelled=True\)\.$"):
        dcpred.evaluate(folder / "model", BLOBS.X, y=y, cost=False)


def test_empty_rows_are_refused_by_every_function(folder: Path, tmp_path: Path) -> None:
    X, y, message = BLOBS.X[:0], BLOBS.y[:0], r"^Cannot use X: it has 0 rows and 4 features\. Pass"
    for call in (
        partial(dcpred.train, X, tmp_path / "m", y=y, **KEYS),
        partial(dcpred.validate, X, y=y, **KEYS),
        partial(dcpred.evaluate, folder / "model", X, y=y, cost=False),
        partial(dcpred.score, folder / "model", X, tmp_path / "s"),
        partial(dcpred.repair, folder / "model", X, tmp_path / "s"),
    ):
        with pytest.raises(DataError, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_values_that_are_no_arrays_settings_or_columns(folder: Path, tmp_path: Path) -> None:
    """One sentence each, before anything is written."""
    X, y, model, out = BLOBS.X, BLOBS.y, folder / "model", tmp_path / "out"
    calls: dict[str, Callable[[], Any]] = {
        "Cannot use settings=3: it is of type int. Pass a": lambda: dcpred.train(X, out, y=y, settings=3),
        "Cannot use settings=['a']: it is of type list": lambda: dcpred.validate(X, y=y, settings=["a"]),
        "Cannot use y=None: it names no targets": lambda: dcpred.train(X, out, y=None),
        "Cannot use y='': it names no targets": lambda: dcpred.evaluate(model, folder / "data.zarr", y=""),
        "Cannot use sample_weight=3: it is one number": lambda: dcpred.train(X, out, y=y, sample_weight=3),
        "Cannot use X=5: it is one number": lambda: dcpred.evaluate(model, 5, y=y),
        "Cannot use costs=3: it is no matrix": lambda: dcpred.evaluate(model, X, y=y, costs=3),
        "Cannot export no columns": lambda: dcpred.export(folder / "scores", f"{out}.csv", columns=[]),
        "Cannot export no status": lambda: dcpred.export(folder / "scores", f"{out}.csv", status=()),
        "Cannot use a value of type NoneType as model": lambda: dcpred.score(None, X, out),
        "Cannot make a report of a value of type int": lambda: dcpred.report(5),
        "Cannot use a value of type int as client": lambda: dcpred.verify(folder / "scores", client=5),
    }
    for message, call in calls.items():
        with pytest.raises((DataError, SettingsError)) as raised:
            call()
        assert str(raised.value).startswith(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "call", "message"),
    [
        ("scores.zarr/label/c", "score", r"is modified or damaged: .*`dcpred verify .*dcpred\.repair"),
        ("manifest.json", "export", r"manifest\.json is modified\. `dcpred verify`.*dcpred\.repair"),
        ("scores.zarr/zarr.json", "open_scores", r"its arrays cannot be opened\. `dcpred verify`"),
        ("scores.zarr/label/zarr.json", "export", r"its arrays cannot be opened\. `dcpred verify`"),
        ("plan.json", "score", r"it holds scores without plan\.json\. Restore that file"),
    ],
)
def test_a_damaged_output_names_what_helps(
    file: str, call: str, message: str, folder: Path, tmp_path: Path
) -> None:
    out, damaged = tmp_path / "scores", tmp_path / "scores" / file
    dcpred.score(folder / "model", folder / "data.zarr", out)
    if file == "manifest.json":
        damaged.write_text(damaged.read_text().replace("300", "301"))
    elif damaged.is_dir():
        shutil.rmtree(damaged)
    else:
        damaged.unlink()
    given = {"score": (folder / "model", folder / "data.zarr", out), "export": (out, tmp_path / "t.csv")}
    with pytest.raises(DcpredError, match=message):
        getattr(dcpred, call)(*given.get(call, (out,)))


def test_a_client_that_cannot_be_used(folder: Path) -> None:
    async def ask() -> None:
        async with (
            LocalCluster(
                n_workers=0, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(
                SchedulerError, match=r"it is asynchronous, and dcpred waits for results\. Create"
            ):
                dcpred.score(folder / "model", BLOBS.X, folder / "never", client=client)

    asyncio.run(ask())
    assert not (folder / "never").exists()
    with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        closed = Client(cluster, set_as_default=False)
        closed.close()
        with pytest.raises(SchedulerError, match=r"^Cannot use this Dask client: it is closed"):
            dcpred.verify(folder / "scores", client=closed)


def test_names_and_arrays_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"^Cannot use y='y': it is the name of an array, but data is an array"
    ):
        dcpred.train(BLOBS.X, tmp_path / "model")
    with pytest.raises(
        DataError,
        match=r"^Cannot use a value of type ndarray as y: data is stored at an address\. Pass",
    ):
        dcpred.train(folder / "data.zarr", tmp_path / "model", y=BLOBS.y)
    with pytest.raises(DataError, match=r"^Cannot use a value of type int as model: it is not a path\."):
        dcpred.score(5, BLOBS.X, tmp_path / "scores")
    with pytest.raises(DataError, match=r"^Cannot refresh from a value of type ndarray: it is not stored\."):
        dcpred.refresh(folder / "model", BLOBS.X, tmp_path / "root")
    with pytest.raises(SettingsError, match="Cannot combine shard with client"):
        dcpred.score(folder / "model", BLOBS.X, tmp_path / "scores", shard="0/2", client="tcp://h:1")
    assert not list(tmp_path.iterdir())


def test_rows_in_memory_and_an_output_on_a_store(folder: Path, s3: StoreServer) -> None:
    """They are stored next to the output, and the same call finds them there."""
    with used(s3), dcpred.storage_options(**s3.options):
        out = s3.address("api", "scores")
        model = dcpred.train(
            BLOBS.X, s3.address("api", "model"), y=BLOBS.y, scratch=folder / "s", **KEYS
        ).model
        for scored in (1, 0):
            report = dcpred.score(model, BLOBS.X, out)
            assert isinstance(report, dcpred.ScoreReport)
            assert report.scored_blocks == scored
        assert dcpred.verify(out, "sample", seed=0).ok
        group = open_group(f"{out}.data.zarr")
        assert list(group.array_keys()) == ["X"]
        assert (dcpred.open_scores(out)["label"] == labels(folder, "scores")).all()
        assert dcpred.evaluate(model, group["X"], y=BLOBS.y, cost=False).accuracy > 0.9


def test_explanations_of_stored_rows(folder: Path) -> None:
    stored = dcpred.explain(folder / "model", folder / "data.zarr", [3, 5])
    rows = dcpred.explain(dcpred.load_model(folder / "model"), BLOBS.X, [3, 5])
    assert repr(stored) == repr(rows)
    array = zarr.open_array(folder / "data.zarr" / "X", mode="r")
    assert repr(dcpred.explain(dcpred.load_model(folder / "model"), array)) == repr(
        dcpred.explain(folder / "model", BLOBS.X)
    )


# -- results -------------------------------------------------------------------------------------------------


def test_results(folder: Path, tmp_path: Path) -> None:
    """They are frozen, print on one short line, show as a table, and hold what --json prints."""
    data = folder / "data.zarr"
    found = [
        dcpred.verify(folder / "scores"),
        dcpred.status(folder / "scores"),
        dcpred.export(folder / "scores", tmp_path / "t.csv", status=["ok"]),
        dcpred.export_model(folder / "model", tmp_path / "model.c"),
        dcpred.split(data, into=(tmp_path / "train.zarr", tmp_path / "test.zarr")),
        dcpred.refresh(folder / "model", data, tmp_path / "root"),
        dcpred.status(tmp_path / "root"),
        dcpred.evaluate(folder / "model", data, cost=False),
        dcpred.repair(folder / "model", data, folder / "scores"),
        *(dcpred.inspect(path) for path in (folder / "model", data, folder / "scores")),
    ]
    for one in found:
        assert isinstance(one, PublicResult)
        assert repr(one).startswith(f"{type(one).__name__}(")
        assert len(repr(one)) < 700
        assert one._repr_html_().startswith(f"<table><caption>{type(one).__name__}</caption><tr>")
        there = {field.name for field in fields(one) if getattr(one, field.name) is not ABSENT}
        assert one.as_dict().keys() >= there - {"figures"}
        with pytest.raises(FrozenInstanceError):
            one.output = "other"  # type: ignore[union-attr,misc]


def test_figures_of_an_evaluation(folder: Path) -> None:
    found = dcpred.evaluate(folder / "model", BLOBS.X, y=BLOBS.y, cost=False, threshold=0.3, metric="roc_auc")
    assert found.accuracy == found["accuracy"] == dict(found)["accuracy"] == found.as_dict()["accuracy"]
    assert found.threshold == pytest.approx(0.3)
    assert found.score == pytest.approx(found.auc, abs=1e-3)
    assert "accuracy" in dir(found)
    assert "classes" in found
    with pytest.raises(AttributeError, match=r"^This evaluation has no 'rmse'\. It has accuracy, "):
        _ = found.rmse


def test_a_run_beyond_its_limits_raises_with_its_report(folder: Path, tmp_path: Path) -> None:
    X = BLOBS.X.copy()
    X[7, 2] = np.nan
    data = make_group(tmp_path / "bad.zarr", X, BLOBS.y)
    with pytest.raises(IncompleteError, match=r"it is beyond its limits") as raised:
        dcpred.refresh(folder / "model", data, tmp_path / "root", max_bad_rows=0)
    assert raised.value.report.state == "kept"
    first = dcpred.publish(tmp_path / "root", raised.value.report.run)
    assert (first.latest, first.before) == (raised.value.report.run, "")
    assert DcpredError("x").report is None


# -- documentation -------------------------------------------------------------------------------------------

# Not every function needs an example, further words, or a list of others; dtypes begin with a small letter.
LENIENT = {"EX01", "SA01", "ES01", "RT04", "PR08"}
RESULT = "PR01"  # Nobody makes a result: its fields are attributes, not parameters.


def documented() -> list[str]:
    """Public names, and public methods and properties of classes."""
    found = []
    for name in set(dcpred.__all__) - {"__version__"}:
        found.append(f"dcpred.{name}")
        if inspect.isclass(one := getattr(dcpred, name)):
            found += [f"dcpred.{name}.{m}" for m, v in vars(one).items() if m[0] != "_" and _has_text(v)]
    return sorted(found)


def _has_text(member: Any) -> bool:
    return callable(member) or isinstance(member, property)


@pytest.mark.parametrize("name", documented())
def test_docstrings_are_those_of_numpydoc(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of sections in See Also
        found = problems(name)["errors"]
    lenient = LENIENT | ({RESULT} if inspect.isclass(one := resolved(name)) and is_result(one) else set())
    assert [(code, text) for code, text in found if code not in lenient] == []


def resolved(name: str) -> Any:
    return attrgetter(name.removeprefix("dcpred."))(dcpred)


def results() -> set[type]:
    """The classes of dcpred that public functions and methods return, and those of their fields."""
    found: set[type] = set()
    left = [
        get_type_hints(resolved(name)).get("return")
        for name in documented()
        if inspect.isfunction(resolved(name))
    ]
    while left:
        one = left.pop()
        left += get_args(one)
        if inspect.isclass(one) and is_result(one) and one not in found:
            found.add(one)
            left += [*get_type_hints(one).values(), *getattr(one, "__orig_bases__", ())]
    return found - {PublicResult}  # their base


def is_result(one: type) -> bool:
    """Whether it is a dataclass of ours, or a list of such."""
    of_ours = one.__module__.startswith("dcpred") and one is not PublicResult
    return of_ours and (is_dataclass(one) or issubclass(one, list))


def test_every_result_is_public_and_every_dataclass_is_a_result() -> None:
    public = {
        one for name in dcpred.__all__ if inspect.isclass(one := getattr(dcpred, name)) and is_result(one)
    }
    assert public - results() == {dcpred.Settings, dcpred.Shard}, "arguments alone"
    assert results() - public == set()


@pytest.mark.parametrize(
    "one", sorted(filter(is_dataclass, results() - {dcpred.Evaluation}), key=lambda one: one.__name__)
)
def test_every_field_of_a_result_is_described(one: type) -> None:
    """In its order, with the type of its annotation and a sentence."""
    hints = get_type_hints(one)
    wanted = [(field.name, type_text(hints[field.name])) for field in fields(one) if field.name[0] != "_"]
    listed = NumpyDocString(inspect.getdoc(one) or "")["Attributes"]
    assert [(entry.name, entry.type) for entry in listed] == wanted
    assert [entry.name for entry in listed if not " ".join(entry.desc).endswith(".")] == []


def test_scoring_imports_neither_scikit_learn_nor_dask() -> None:
    code = (
        "import sys, dcpred; dcpred.score, dcpred.status, dcpred.verify, dcpred.refresh;"
        "found = {'sklearn', 'scipy', 'dask', 'distributed', 'pandas', 'pyarrow'} & set(sys.modules);"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr


def test_estimators_link_to_the_documentation_that_the_package_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook shows the link; the pages of scikit-learn do not describe these estimators."""
    found = Message()
    monkeypatch.setattr("dcpred.estimators.base.metadata", lambda name: found)
    assert dcpred.DCPredClassifier()._get_doc_link() == ""
    found["Project-URL"] = "Source, https://example.org"
    found["Project-URL"] = "Documentation, https://example.org/docs"
    assert dcpred.DCPredRegressor()._get_doc_link() == "https://example.org/docs"
    assert 'href="https://example.org/docs"' in dcpred.DCPredRegressor()._repr_html_()
