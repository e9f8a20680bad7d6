"""What a person sees: one line for a whole job, which fits, never goes backwards, and guesses no sooner than
it can.
"""

import io
import re
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dcpred import DCPredRegressor
from dcpred.execution import progress
from dcpred.execution.progress import (
    FIRST_GUESS_SECONDS,
    FIRST_GUESS_SHARE,
    SILENT,
    Bars,
    EventReporter,
    Line,
    Lines,
    ProgressEstimate,
    Reporter,
    Shares,
    reporter,
    roughly,
)
from dcpred.execution.terminal import MOST_COLUMNS, Verbosity, at_verbosity, cut
from dcpred.training.steps import forecast_training
from dcpred.tuning.policy import STANDARD, THOROUGH
from dcpred.tuning.tune import forecast_tuning
from dcpred_tasks.training.settings import Settings
from support.data import make_blobs
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
        with say.part(0.25), say.job("the first"):
            with say.part(0.5), say.step("learning the scaling", None, ""):
                clock.now += 10
            say.say("a remark " * 20)
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
    assert lines[0] == "0 %, 0 s: learning the scaling"
    assert lines[1].startswith("a remark a remark")
    assert lines[2] == "12 %, 10 s, about 70 s left: reading rows"
    assert lines[-1] == "training: done in 1 min 0 s"
    told = [line for line in lines if "fitting leaves" in line]
    assert len(told) == 10, "one at the start, and one in 5 s"
    assert all(len(line) <= MOST_COLUMNS for line in lines if "remark" not in line)
    shares = [int(line.split(" %")[0]) for line in lines if " %" in line]
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
    """92 % after 46 minutes are about 4 minutes more; once these are over without a count, nobody knows."""
    say = Lines(Console(file=io.StringIO(), width=200))
    with say.job("tuning"):
        with say.part(0.92), say.step("evaluating settings", 46, "tries") as advance:
            for _ in range(46):
                clock.now += 60
                advance(1)
        assert say.line is not None
        with say.step("fitting leaves", 10, "rows") as advance:
            assert "92 %, 46 min 0 s, about 4 min left" in say.line.text()
            clock.now += 230
            assert "about 10 s left" in say.line.text()
            clock.now += 20
            assert "left" not in say.line.text()
            advance(5)
            assert "96 %, 50 min 10 s, about 2 min left" in say.line.text()


def test_a_step_that_counts_nothing_has_no_guess(clock: Clock) -> None:
    say = Lines(Console(file=io.StringIO(), width=200))
    with say.job("training"):
        with say.part(0.5), say.step("routing", 10, "rows") as advance:
            clock.now += 60
            advance(10)
        assert say.line is not None
        with say.step("publishing", None, ""):
            clock.now += 1
            assert say.line.text() == "50 %, 1 min 1 s: publishing"


def test_a_job_that_fails_is_not_told_to_be_done(clock: Clock) -> None:
    def fail(say: Lines) -> None:
        with suppress(ValueError), say.job("training"), say.step("fitting", 2, "rows"):
            raise ValueError
        work(say, clock)  # and the next begins anew

    lines = written(fail)
    assert lines[:2] == ["0 %, 0 s: fitting", "0 %, 0 s: learning the scaling"]
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
            seen.print(say.shown.get_renderable())
            text = seen.file.getvalue().strip("\n")  # type: ignore[attr-defined]
            assert len(text) == columns
            assert "50 %" in text
            assert ("1 min 40 s, about 2 min left" in text) == (columns >= 40)
            assert ("━" in text) == (columns >= 60)

    shown = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", screen(look, columns))
    assert max(len(line.strip("\r")) for part in shown.split("\n") for line in part.split("\r")) <= columns


def test_a_terminal_keeps_remarks_and_one_closing_line(clock: Clock) -> None:
    shown = screen(lambda say: work(say, clock), 80)
    assert shown.endswith("training: done in 1 min 0 s\n")
    kept = [line for line in shown.split("\n") if "remark" in line]
    assert len(kept) == 3, "180 columns of it, wrapped between words"


def test_time_goes_by_where_nothing_is_counted(clock: Clock) -> None:
    line = Line("learning the scaling")
    before = line.text()
    clock.now += 7
    assert (before, line.text()) == ("0 %, 0 s: learning the scaling", "0 %, 7 s: learning the scaling")


def test_programs_are_told_nothing_and_plain_terminals_get_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reporter(0) is SILENT
    with at_verbosity(Verbosity.QUIET):
        assert isinstance(reporter(), EventReporter)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not isinstance(reporter(), Bars)


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


# -- arithmetic ----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-0.2, 1.2), st.floats(0, 1e4)), max_size=40))
def test_progress_is_between_0_and_1_and_never_goes_backwards(
    parts: list[tuple[float, float, float]],
) -> None:
    """Whatever shares are told, and however much less or more than that is done in them."""
    now, seen = 0.0, [0.0]
    estimate = ProgressEstimate(now)
    for share, reached, seconds in parts:
        with estimate.part(share) as (start, end):
            assert start == estimate.done
            assert start <= end <= 1
            now += seconds
            estimate.reach(start + reached * (end - start), now)
            seen.append(estimate.done)
            left = estimate.seconds_left(now)
            assert left is None or left >= 0
            estimate.reach(end, now)
        seen.append(estimate.done)
    assert seen == sorted(seen)
    assert seen[-1] <= 1


def test_the_time_left_is_known_late_and_does_not_jump() -> None:
    estimate = ProgressEstimate(0.0)
    estimate.reach(0.5, FIRST_GUESS_SECONDS / 2)
    assert estimate.seconds_left(FIRST_GUESS_SECONDS / 2) is None, "too early"
    estimate = ProgressEstimate(0.0)
    estimate.reach(FIRST_GUESS_SHARE / 2, 100.0)
    assert estimate.seconds_left(100.0) is None, "too little is done"
    estimate.reach(0.2, 200.0)
    before = estimate.seconds_left(200.0)
    assert before == pytest.approx(800.0, rel=0.35)
    assert before is not None
    assert estimate.seconds_left(300.0) == pytest.approx(before - 100.0), "it falls while nothing is counted"
    assert estimate.seconds_left(200.0 + before) is None, "and when it has run out, nobody knows"
    estimate.reach(0.201, 3_000.0)  # a sudden halt
    after = estimate.seconds_left(3_000.0)
    assert after is not None
    assert after < 0.5 * 3_000 * 0.8 / 0.2, "one slow step does not make the whole slow"


def test_a_single_step_is_guessed_at_from_its_second_block_on() -> None:
    """However small a share of it two blocks are; in a job of several steps their share says too little."""
    for alone in (True, False):
        estimate = ProgressEstimate(0.0)
        estimate.count(0.001, 10.0, alone)
        assert estimate.seconds_left(10.0) is None
        estimate.count(0.002, 20.0, alone)
        left = estimate.seconds_left(20.0)
        assert left == (pytest.approx(9_980.0) if alone else None)


def test_a_slow_first_block_is_soon_forgotten() -> None:
    """Workers start, and the engine is compiled, in the time of the first block."""
    estimate = ProgressEstimate(0.0)
    estimate.count(0.001, 30.0, True)
    for block in range(2, 21):
        estimate.count(block / 1_000, 29.0 + block, True)
    left = estimate.seconds_left(49.0)
    assert left is not None
    assert left < 3_000, "980 blocks of a second, and not of 30"


def test_shares_are_of_what_is_left() -> None:
    shares = Shares({"a": 1.0, "b": 3.0, "c": 0.0})
    assert [shares.of_rest(name) for name in "abc"] == [0.25, 1.0, 1.0]
    estimate = ProgressEstimate(0.0)
    for name, done in (("a", 0.25), ("b", 1.0), ("c", 1.0)):
        with estimate.part(shares.of_rest(name)) as (_, end):
            estimate.reach(end, 1.0)
        assert estimate.done == done


@pytest.mark.parametrize("n_rows", [1, 100, 20_000, 10**8])
@pytest.mark.parametrize("n_features", [1, 54, 784])
@pytest.mark.parametrize(
    "settings", [Settings(), Settings(refine=False), Settings(refine_epochs=25), Settings(scaling="learned")]
)
def test_forecasts_of_every_size_of_data(n_rows: int, n_features: int, settings: Settings) -> None:
    training = forecast_training(n_rows, n_features, settings, 2)
    tuning = [forecast_tuning(n_rows, n_features, 2, policy).total for policy in (STANDARD, THOROUGH)]
    assert all(np.isfinite(seconds) and seconds >= 0 for seconds in training.work.values())
    assert training.total < forecast_training(10 * n_rows, n_features, settings, 2).total
    assert 0 < tuning[0] < tuning[1]


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
