"""The state of the input of a run of a refresh when it was read: which of its chunks are unchanged since."""

from dataclasses import asdict, replace

from dcpred_tasks.annotations import from_document
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import read_sealed_document, write_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.stored_chunks import InputState


def write_inputs(place: Place, file: str, state: InputState, *, full: bool) -> None:
    """full  whether the run was begun to reuse nothing"""
    value = {"full": full, **asdict(state)}
    write_document(place, file, {**value, "checksum": digest_json(value)})


def read_inputs(place: Place, file: str) -> tuple[InputState, bool] | None:
    """(state, full); None if it is missing or modified."""
    value = read_sealed_document(place, file) or {}
    try:
        return from_document(InputState, value), bool(value.get("full"))
    except ValueError:
        return None


def forget_rows(state: InputState, rows: list[tuple[int, int]]) -> InputState:
    """The state without the marks of chunks below these rows: no later run takes them for unchanged."""
    marks = list(state.marks)
    for start, stop in rows:
        for number in range(start // state.mark_rows, min(-(-stop // state.mark_rows), len(marks))):
            marks[number] = ""
    return replace(state, marks=tuple(marks))
