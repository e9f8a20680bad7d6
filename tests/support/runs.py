"""Runs that the public functions do not end with a report, or cut in other blocks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dcpred.execution.block_plan import BlockBoundaries
from dcpred.runs.manifest import ScoreReport
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request, requested_columns
from dcpred.scoring.whole_run import score_all_rows
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import IncompleteError
from support.pools import inline


def report_of_incomplete(call: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """The report of a run that ended, but with rows skipped or beyond its limits."""
    with pytest.raises(IncompleteError) as raised:
        call(*given, **options)
    return raised.value.report


def score_in_blocks(
    model: Path | str, data: str, output: Path, blocks: BlockBoundaries, **tables: Any
) -> ScoreReport:
    """A run of all rows in these blocks."""
    x = find_rows(data, "X", model)
    columns = requested_columns(None, None, None, None, tables.get("parquet", False), tables.get("id", ()))
    request = Request(model, x, output, columns, pool=inline)
    return score_all_rows(request, plan_run(request, blocks=blocks))
