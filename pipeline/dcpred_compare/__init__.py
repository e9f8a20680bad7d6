"""Comparison with baselines on one data set: `dcpred compare`, `dcpred.compare` and the page of its results.

This package stands on dcpred and dcpred_tasks. Neither imports it: they find it by the entry points of
`pyproject.toml` (dcpred.extensions).
"""

from click import Command


def load_command() -> Command:
    """Compare dcpred with baselines on one data set."""
    from dcpred_compare.command import compare_command

    return compare_command
