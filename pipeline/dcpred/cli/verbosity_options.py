"""-v and -q, which every command has."""

from typing import Any

import click

from dcpred.execution.verbosity import Verbosity, at_verbosity

CHOSEN = f"{__name__}.chosen"  # in ctx.meta: the given option


def verbosity_options() -> list[click.Parameter]:
    """The options; they set `dcpred.execution.verbosity`."""
    return [
        _option(
            "-v",
            "--verbose",
            Verbosity.MORE,
            "Print more: times, versions, places, tracebacks of errors.",
        ),
        _option("-q", "--quiet", Verbosity.QUIET, "Print nothing on standard error but errors."),
    ]


def _option(short: str, long: str, level: Verbosity, meaning: str) -> click.Option:
    def choose(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if not value:
            return
        if ctx.meta.setdefault(CHOSEN, long) != long:
            raise click.UsageError(
                "Cannot combine --verbose with --quiet: one excludes the other. Give one of them.", ctx
            )
        ctx.with_resource(at_verbosity(level))

    return click.Option([short, long], is_flag=True, expose_value=False, callback=choose, help=meaning)
