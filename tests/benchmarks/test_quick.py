"""Every benchmark runs in its quick form, so that none rots."""

import os
import sys
from pathlib import Path

import pytest

from support import processes

HERE = Path(__file__).parent
SHARED = (
    "baselines",
    "common",
    "fresh_tables",
    "halves",
    "injuries",
    "machines",
    "more_sets",
    "rivals",
    "scatter",
    "sets",
    "synthetic",
    "test_quick",
)
BENCHMARKS = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in SHARED)
SHOWN = {
    "all_tables": ("HistGradientBoosting", "tuned SVM", "regret", "| development | numbers | 1 |"),
    "picture": ("DC-Pred++", "exact SVM"),
    "paper": ("DC-Pred++", "without refinement", "exact kernel ridge", "random Fourier features", "; "),
}


# Further forms of a benchmark, by their options.
FORMS = {
    "chaos": ("--delta", "--attacks=kill-driver,full-disk,kill-commit,two-commits"),
    "noise": ("--metrics",),
}
CASES = [(name, ()) for name in BENCHMARKS] + list(FORMS.items())

# Remarks on made data are UserWarnings, and true.
WARNINGS = ("-W", "error", "-W", "ignore::UserWarning")


@pytest.mark.quick
@pytest.mark.parametrize(("name", "options"), CASES, ids=[" ".join((name, *more)) for name, more in CASES])
def test_quick(name: str, options: tuple[str, ...], tmp_path: Path, real_data: Path) -> None:
    result = processes.run(
        [sys.executable, *WARNINGS, HERE / f"{name}.py", "--quick", *options],
        cwd=tmp_path,
        env=os.environ | {"DCPRED_DATA": str(real_data.resolve())},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("| ")
    assert "| nan" not in result.stdout
    assert all(words in result.stdout for words in SHOWN.get(name, ()))
