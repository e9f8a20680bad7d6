"""A notebook: progress is one line that is replaced, estimators and reports are shown as HTML, and nothing is
saved that only a terminal understands.
"""

from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = (
    """
import numpy as np
from dcpred import DCPredClassifier

X = np.random.default_rng(0).normal(size=(120, 3))
DCPredClassifier(n_leaves=1, landmarks=4)
""",
    """
model = DCPredClassifier(n_leaves=1, landmarks=4, verbose=1, random_state=0).fit(X, X.sum(axis=1) > 0)
model
""",
    """
from dcpred.execution.progress import reporter, reporting, show, show_step

with reporting(reporter()), show_step("counting <b>rows</b>", 3, "rows") as advance:
    for _ in range(3):
        advance(1)
    show("a remark")
""",
)


# What other packages do as they start a kernel is none of ours: IPython's own warnings.
@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_shows_a_line_and_estimators() -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    outputs: list[list[dict[str, Any]]] = [cell.outputs for cell in book.cells]
    for output in (one for cell in outputs for one in cell):
        assert output["output_type"] != "stream", output
        assert "\\x1b" not in repr(output["data"]["text/plain"])
    (plain,), fitted, counting = outputs
    assert "DCPredClassifier" in plain["data"]["text/html"]
    told, *remarks, shown = fitted
    told = next(one for one in (told, *remarks) if "done in" in one["data"]["text/plain"])
    assert told["data"]["text/plain"].startswith("training: done in ")
    assert "text/html" not in told["data"]
    assert "Fitted" in shown["data"]["text/html"]
    line, remark = (output["data"] for output in counting)
    assert line["text/plain"].startswith("counting <b>rows</b>: 3 rows in ")
    assert remark == {"text/plain": "a remark"}
