"""What a person sees: one line for a whole job, which fits, never goes backwards, and guesses no sooner than
it can.
"""

import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from rich.console import Console

from dcpred import DCPredRegressor
from dcpred.execution import progress
from dcpred.execution.progress import (
    FIRST_GUESS_SECONDS,
    SILENT,
    Bars,
    EventReporter,
    Line,
    Lines,
    Reporter,
    reporter,
    reporting,
    roughly,
    show_step,
)
from dcpred.execution.terminal import MOST_COLUMNS, Verbosity, at_verbosity, cut
from dcpred.public.functions import typed
from support.data import make_blobs
from support.reporters import Recorder
from support.searches import few_candidates
from support.setting_words import classifier_with

LONG = "choosing settings for data with a title that is longer than any line of a terminal or a log could be"


class Clock:
    """The clock of the module `progress`, which goes by when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(say: Reporter, clock: Clock, title: str = "fitting leaves") -> None:
    """A job of 60 s in two parts, of which the first has a job in it."""
    with say.job("training"):
        with say.job("the first"):
            with say.step("learning the scaling", None, ""):
                clock.now += 10
            say.remark("a remark " * 20)
            with say.step("reading rows", 5, "rows") as advance:
                for _ in range(5):
                    clock.now += 1
                    advance(1)
        with say.step(title, 45, "rows") as advance:
            for _ in range(45):
                clock.now += 1
                advance(1)


# -- lines for logs ------------------------------------------------------------------------------------------


def written(act: Callable[[Lines], None], level: Verbosity = Verbosity.NORMAL) -> list[str]:
    out = io.StringIO()
    act(Lines(Console(file=out, width=200), level))
    return out.getvalue().splitlines()


def test_a_log_gets_a_line_for_each_step_and_every_few_seconds(clock: Clock) -> None:
    lines = written(lambda say: work(say, clock))
    assert lines[0] == "0 s: learning the scaling"
    assert lines[1].startswith("a remark a remark")
    assert lines[2] == "0 %, 0 s: reading rows"
    assert lines[-1] == "training: done in 1 min 0 s"
    told = [line for line in lines if "fitting leaves" in line]
    assert len(told) == 10, "one at the start, and one in 5 s"
    assert all(len(line) <= MOST_COLUMNS for line in lines if "remark" not in line)
    shares = [int(line.split(" %")[0]) for line in told]
    assert shares == sorted(shares)
    assert shares[-1] == 100


def test_long_titles_are_cut_and_not_wrapped(clock: Clock) -> None:
    lines = written(lambda say: work(say, clock, LONG))
    told = [line for line in lines if LONG[:10] in line]
    assert all(len(line) == MOST_COLUMNS and line.endswith("…") for line in told)


def test_a_step_alone_has_a_rate(clock: Clock) -> None:
    def score(say: Lines) -> None:
        with say.step("scoring", 1_000, "rows") as advance:
            for _ in range(10):
                clock.now += 2
                advance(100)

    lines = written(score)
    assert lines[0] == "0 %, 0 s: scoring"
    assert lines[1] == "30 %, 6 s, about 15 s left, 50 rows/s: scoring"
    assert lines[-1] == "scoring: 1,000 rows in 20.0 s, 50 rows/s"


def test_a_step_of_unknown_length_promises_nothing(clock: Clock) -> None:
    def compile_and_import(say: Lines) -> None:
        with say.step("compiling", None, ""):
            clock.now += 31
        with say.step("importing", None, "rows") as advance:
            clock.now += 10
            advance(500)

    assert written(compile_and_import) == [
        "0 s: compiling",
        "compiling: done in 31.0 s",
        "0 s: importing",
        "10 s, 50 rows/s: importing",
        "importing: 500 rows in 10.0 s, 50 rows/s",
    ]


def test_a_guess_that_has_run_out_is_not_shown(clock: Clock) -> None:
    """After half of it there are 5 minutes more; once these are over without a count, nobody knows."""
    line = Line("fitting leaves", 10, "leaves")
    for _ in range(5):
        clock.now += 60
        line.count(1)
    assert line.text() == "50 %, 5 min 0 s, about 5 min left, 0 leaves/s: fitting leaves"
    clock.now += 230
    assert "about 70 s left" in line.text()
    clock.now += 80
    assert "left" not in line.text()
    line.count(1)
    assert "60 %, 10 min 10 s, about 7 min left" in line.text()


def test_a_guess_needs_some_seconds_and_some_equal_parts(clock: Clock) -> None:
    line = Line("fitting leaves", 1_000, "")
    for _ in range(2):
        assert line.seconds_left(clock.now) is None
        clock.now += FIRST_GUESS_SECONDS / 2
        line.count(1)
    assert line.seconds_left(clock.now) == pytest.approx(FIRST_GUESS_SECONDS * 998 / 2)
    unknown = Line("importing", None, "rows")
    clock.now += 100
    unknown.count(5)
    unknown.count(5)
    assert unknown.seconds_left(clock.now) is None


def test_a_step_within_a_step_is_not_shown(clock: Clock) -> None:
    def act(say: Lines) -> None:
        with say.step("scoring", 2, "rows") as advance:
            with say.step("compiling", None, "") as inner:
                inner(1)
            advance(2)

    assert not any("compiling" in line for line in written(act))


def test_a_job_that_fails_is_not_told_to_be_done(clock: Clock) -> None:
    def fail(say: Lines) -> None:
        with suppress(ValueError), say.job("training"), say.step("fitting", 2, "rows"):
            raise ValueError
        work(say, clock)  # and the next begins anew

    lines = written(fail)
    assert lines[:2] == ["0 %, 0 s: fitting", "0 s: learning the scaling"]
    assert sum("done in" in line for line in lines) == 1


def test_who_asks_for_more_is_told_of_each_step(clock: Clock) -> None:
    def act(say: Lines) -> None:
        say.detail("of which machine")
        work(say, clock)

    few, more = written(act), written(act, Verbosity.MORE)
    added = [line for line in more if line not in few]
    assert added == [
        "of which machine",
        "learning the scaling: done in 10.0 s",
        "reading rows: 5 rows in 5.0 s, 1 rows/s",
        "fitting leaves: 45 rows in 45.0 s, 1 rows/s",
    ]
    assert [line for line in more if line not in added] == few


# -- a line on a terminal ------------------------------------------------------------------------------------


def screen(act: Callable[[Bars], None], columns: int) -> str:
    out = io.StringIO()
    act(Bars(Console(file=out, width=columns, force_terminal=True, color_system=None)))
    return out.getvalue()


@pytest.mark.parametrize("columns", [80, 60, 40, 20])
def test_one_line_fits_the_terminal(clock: Clock, columns: int) -> None:
    def look(say: Bars) -> None:
        with say.job("training"), say.step(LONG, 10, "rows") as advance:
            for _ in range(5):
                clock.now += 20
                advance(1)
            assert say.line is not None
            seen = Console(file=io.StringIO(), width=columns)
            assert say.bars is not None
            seen.print(say.bars.get_renderable())
            text = seen.file.getvalue().strip("\n")  # type: ignore[attr-defined]
            assert len(text) == columns
            assert "50 %" in text
            assert ("1 min 40 s, about 2 min left" in text) == (columns >= 40)
            assert ("━" in text) == (columns >= 60)

    shown = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", screen(look, columns))
    assert max(len(line.strip("\r")) for part in shown.split("\n") for line in part.split("\r")) <= columns


def seen(say: Bars, columns: int = 80) -> list[str]:
    """The bars that a terminal shows now."""
    assert say.bars is not None
    out = io.StringIO()
    Console(file=out, width=columns).print(say.bars.get_renderable())
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_each_step_of_a_job_has_a_bar_of_its_own(clock: Clock) -> None:
    """Ended steps stay, the last ones; steps within others are shown, and those that fail vanish."""

    def look(say: Bars) -> None:
        with say.job("training"):
            with suppress(ValueError), say.step("failing", None, ""):
                raise ValueError
            for number in range(6):
                with say.step(f"step {number}", 10, "rows") as advance:
                    clock.now += 10
                    advance(10)
            with say.step("scoring", 10, "rows") as advance, say.step("compiling", None, "") as inner:
                clock.now += 10
                inner(1)
                advance(5)
                bar = "━" * 12
                assert seen(say)[:4] == [
                    f"✓ {bar} step {number}: 10 rows in 10.0 s, 1 rows/s" for number in range(2, 6)
                ]
                scoring, compiling = seen(say)[4:]
                assert scoring.endswith("50 %, 10 s, 0 rows/s: scoring")
                assert compiling.endswith("10 s: compiling")
        assert say.bars is None

    assert screen(look, 80).endswith("training: done in 1 min 10 s\n")


def test_a_terminal_keeps_remarks_and_one_closing_line(clock: Clock) -> None:
    shown = screen(lambda say: work(say, clock), 80)
    assert shown.endswith("training: done in 1 min 0 s\n")
    kept = [line for line in shown.split("\n") if "remark" in line]
    assert len(kept) == 3, "180 columns of it, wrapped between words"


def test_time_goes_by_where_nothing_is_counted(clock: Clock) -> None:
    line = Line("learning the scaling", None, "")
    before = line.text()
    clock.now += 7
    assert (before, line.text()) == ("0 s: learning the scaling", "7 s: learning the scaling")


def test_programs_are_told_nothing_and_plain_terminals_get_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reporter(0) is SILENT
    with at_verbosity(Verbosity.QUIET):
        assert isinstance(reporter(), EventReporter)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not isinstance(reporter(), Bars)


def test_the_reporter_of_the_outermost_call_shows_what_happens_within(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A call within another shows what it does there, unless it is asked not to; a thread shows nothing."""

    @typed
    def act(title: str, *, verbose: bool = False, then: Callable[..., None] | None = None) -> None:
        with show_step(title, None, ""):
            pass
        if then is not None:
            then("within")
            then("asked for", verbose=True)
            then("silent", verbose=False)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(then, "of a thread").result()
            raise ValueError

    with reporting(recorder := Recorder()):
        for more in ({}, {"verbose": True}, {"verbose": False}):
            with suppress(ValueError):
                act("call", then=act, **more)
        assert recorder.told == ["call", "within"]
    act("afterwards")
    assert recorder.told == ["call", "within"]
    lines = [line for line in capsys.readouterr().err.splitlines() if "done in" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "asked for",
        "call",
        "within",
        "asked for",
        "asked for",
    ]


def test_guesses_are_no_more_exact_than_they_can_be() -> None:
    assert [roughly(s) for s in (0.2, 41, 89, 100, 700, 4_000)] == [
        "5 s",
        "45 s",
        "90 s",
        "2 min",
        "12 min",
        "1 h 6 min",
    ]
    assert [cut("abcdef", n) for n in (7, 6, 5, 1)] == ["abcdef", "abcdef", "abcd…", "…"]


# -- estimators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{"n_leaves": 2}, {}, {"budget": "40x"}], ids=["with a setting", "without", "with a budget"]
)
def test_estimators_are_silent_unless_asked(
    more: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    blobs = make_blobs(100, n_features=3, n_classes=2, seed=0)
    model = classifier_with(random_state=0, **more)
    with few_candidates():
        quiet = model.fit(blobs.X, blobs.y).decision_function(blobs.X)
        assert capsys.readouterr() == ("", "")
        loud = model.set_params(verbose=1).fit(blobs.X, blobs.y).decision_function(blobs.X)
    np.testing.assert_array_equal(loud, quiet)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting" in err
    assert ("evaluating settings" in err) == ("n_leaves" not in more)
    assert any(": done in " in line for line in err.splitlines()[-2:])
    DCPredRegressor(n_leaves=2, verbose=1, n_jobs=2, random_state=0).fit(blobs.X, blobs.X[:, 0])
    assert "learning the scaling and the tree" in capsys.readouterr().err
