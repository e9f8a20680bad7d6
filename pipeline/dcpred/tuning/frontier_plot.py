"""Plots, where matplotlib is installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dcpred_tasks.errors import SettingsError

KINDS = (".png", ".svg", ".pdf")


def check_plot(path: Path | None) -> None:
    """Raise SettingsError unless a plot can be written there. Before any work."""
    if path is None:
        return
    if path.is_dir() or path.suffix.lower() not in KINDS:
        raise SettingsError(
            f"a plot was asked for as {path}, but it is written as {', '.join(KINDS)}; name such a file"
        )
    if not path.absolute().parent.is_dir():
        raise SettingsError(
            f"a plot was asked for as {path}, but its directory does not exist; make it first"
        )
    if find_spec("matplotlib") is None:
        raise SettingsError(
            "a plot was asked for, but matplotlib is not installed; install it (pip install matplotlib), or"
            " leave out --plot"
        )


def draw_frontier(report: dict[str, Any], path: Path) -> None:
    """The frontier of a TuneReport: accuracy (or RMSE) on held-out rows against predicted cost."""
    import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to import

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    points, chosen = report["frontier"], report["chosen"]
    name = "rmse" if "rmse" in chosen else "accuracy"
    factor = 1.0 if name == "rmse" else 100.0
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    cost = [p["cost_ratio"] for p in points]
    axes.step(
        cost, [factor * p[name] for p in points], where="post", marker="o", label="least error at a cost"
    )
    axes.plot(
        chosen["cost_ratio"], factor * chosen[name], "s", markersize=11, fillstyle="none", label="chosen"
    )
    axes.set_xlabel("predicted cost, linear predictions per row")
    axes.set_ylabel("RMSE on held-out rows" if name == "rmse" else "accuracy on held-out rows, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
