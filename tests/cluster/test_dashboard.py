"""Dask's pages: closed unless they are asked for, then on loopback, and told where they are."""

import re
import sys
from contextlib import nullcontext
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from dcpred.execution.pools import connect, pages_opened
from dcpred.execution.progress import reporting, show_where
from dcpred_tasks.errors import SettingsError
from support.reporters import Recorder

pytest.importorskip("bokeh")


@pytest.mark.parametrize("asked", [True, False])
def test_pages_of_local_workers_are_there_where_they_are_asked_for(asked: bool) -> None:
    say, opener = Recorder(), build_opener(ProxyHandler({}))
    with reporting(say), pages_opened() if asked else nullcontext(), connect(1) as workers:
        show_where("scoring", workers)
        show_where("verifying", workers)
        link = workers.client.dashboard_link  # type: ignore[attr-defined]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", link)
        if asked:
            with opener.open(link) as page:
                assert page.status == 200
        else:
            with pytest.raises(URLError):
                opener.open(link)
    assert say.told == ([f"Dask's dashboard is at {link}"] if asked else []), "once"


def test_pages_that_cannot_be_made_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pages_opened(), pytest.raises(SettingsError, match="dcpred\\[dashboard\\]"), connect(1):
        pass
