"""Texts of parameters: docstrings and the help of commands have them, in the words of each."""

import click
import pytest

from dcpred.cli import main
from dcpred.cli.commands import Words
from dcpred.public.parameters import SHARED, Parameter, documented, parameters_in


def test_a_docstring_gets_the_texts_that_it_lacks_in_the_order_of_the_signature() -> None:
    def function(x: str, y: str, seed: int = 0) -> None:
        """Do it.

        Parameters
        ----------
        seed : int, default 0
            A seed
            of two lines.

        Returns
        -------
        None
            Nothing.
        """

    known = {name: Parameter("str", f"    {name.upper()}.") for name in ("y", "x", "seed")}
    entries = parameters_in(documented(function, known).__doc__ or "")
    assert list(entries) == ["x", "y", "seed"]
    assert (entries["x"].text, entries["seed"].text) == ("X.", "A seed of two lines.")
    assert (function.__doc__ or "").endswith("Returns\n-------\nNone\n    Nothing.\n")


def test_a_parameter_without_a_text_is_an_error() -> None:
    def function(unheard_of: int) -> None:
        """Do it."""

    with pytest.raises(KeyError, match="unheard_of"):
        documented(function)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Folds. By default 4; with `by_time` 3.", "Folds [default: 4; with --by-time 3]."),
        ("Rows of `data`, as `train` takes them.", "Rows of DATA, as `dcpred train` takes them."),
        ('Or ``"cost=50"``; ``""``: none. In Python also an array.', "Or cost=50; no name: none."),
    ],
)
def test_the_words_of_a_command_line(text: str, wanted: str) -> None:
    assert Words(["by_time", "data"], ["data"]).option(text) == wanted


def test_a_shared_text_is_the_help_of_its_option() -> None:
    context = click.Context(main)
    for name in ("score", "refresh", "evaluate"):
        command = main.get_command(context, name)
        assert command is not None
        option = next(one for one in command.params if one.name == "costs")
        assert isinstance(option, click.Option)
        assert option.help == SHARED["costs"].text.removesuffix(" In Python also an array.")
