"""What a call of `score`, `repair` or `refresh` asks for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcpred.datasets.located import located
from dcpred.execution.pools import chosen_pool, default_pool, store_threads
from dcpred.execution.workers import Pool
from dcpred.runs.ledger import planned_version
from dcpred.scoring.blocks import FailurePolicy
from dcpred_tasks.artifacts.block_files import PARQUET, ZARR
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.label_rule import Costs, given_costs
from dcpred_tasks.storage.addresses import Address

STRICT = FailurePolicy()


@dataclass(frozen=True)
class Columns:
    """The columns that a run writes."""

    outputs: tuple[str, ...] | None = None
    """Output columns; None: the default of the model."""
    alpha: float | None = None
    """Fraction of rows outside of intervals; None: the default."""
    costs: Costs | None = None
    """Costs of labels (dcpred_tasks.model.label_rule); None: labels follow decision values."""
    artifacts: tuple[str, ...] = (ZARR,)
    """What each block leaves (dcpred_tasks.artifacts.block_files)."""
    ids: tuple[str, ...] = ()
    """Columns before the scores in tables; empty: the ids that import stored, else the numbers of rows."""


@dataclass(frozen=True)
class Request:
    """Rows to score by a model into an output."""

    model: str | Path
    x: Address
    """Address of the array; for a refresh also the pattern of several data sets."""
    output: str | Path
    """For a refresh the root of its runs."""
    columns: Columns = Columns()
    tolerance: FailurePolicy = STRICT
    pool: Pool | None = None
    """The workers; None: `default_pool`."""
    delta: str | Path | None = None
    """The Delta table that gets the Parquet files."""

    def pool_for(self, n_blocks: int) -> Pool:
        """The workers for so many blocks."""
        return self.pool or default_pool(self.x, self.output, n_blocks, isolated=self.tolerance.quarantine)


def requested_columns(
    outputs: Sequence[str] | None,
    alpha: float | None,
    threshold: float | str | None,
    costs: Any,
    parquet: bool,
    names: Sequence[str],
    delta: str | Path | None = None,
) -> Columns:
    """The columns of a run; `names` are those before the scores in Parquet files. Raises SettingsError."""
    if names and not parquet and delta is None:
        raise SettingsError(
            "Cannot name ids: no Parquet files are written. Add --parquet or --delta (in Python parquet=True"
            " or delta=TABLE), or omit them."
        )
    return Columns(
        outputs=None if outputs is None else tuple(outputs),
        alpha=alpha,
        costs=given_costs(threshold, costs),
        artifacts=(ZARR, PARQUET) if parquet or delta is not None else (ZARR,),
        ids=tuple(names),
    )


def requested_pool(x: Address, output: str | Path, workers: int | None, client: Any) -> Pool | None:
    """The workers that score X into an output; None: one process per core, if there are several blocks."""
    return (
        None if workers == -1 and client is None else chosen_pool(workers, client, **store_threads(x, output))
    )


@contextmanager
def rows_to_score(
    data: Any,
    x: str,
    model: str | Path,
    output: str | Path,
    workers: int | None,
    client: Any,
    *,
    resumes: bool = False,
) -> Iterator[tuple[Address, Pool | None]]:
    """As `located`, the address of rows without a target, and the workers for them. A run of a Delta table
    keeps the version that it began with.
    """
    chosen_pool(workers, client)  # It refuses what cannot be used, before anything is written.

    def find(address: str | Path, name: str) -> Address:
        return find_rows(planned_version(address, output, resumes=resumes), name, model)

    with located(data, x, None, None, find, client, output, model) as addresses:
        yield addresses.x, requested_pool(addresses.x, output, workers, client)
