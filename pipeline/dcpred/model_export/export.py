"""Write a model as a file that predicts without dcpred."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dcpred.model_export.flat import DTYPES, FlatModel, flat_model
from dcpred.serving import ServedModel, load_model
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.storage.addresses import local_path
from dcpred_tasks.storage.atomic_files import PARTIAL, check_new_name, create_bytes

WRITERS = {".onnx": ("onnx_graph", "onnx_bytes"), ".c": ("c_source", "c_bytes")}


@dataclass(frozen=True)
class ExportedModel:
    """A written model file.

    Attributes
    ----------
    path : str
        Path of the file.
    dtype : str
        Data type of the rows that it takes.
    features : tuple of str
        The name of each feature of a row, with the numbers of its categories if it has any.
    n_bytes : int
        Size of the file in bytes.
    """

    path: str
    dtype: str
    features: tuple[str, ...]
    n_bytes: int


def export_model(
    model: str | Path | ServedModel, out: str | Path, *, dtype: str = "float32"
) -> ExportedModel:
    """Write a model as a file that predicts without dcpred: an ONNX graph, or a C source.

    Parameters
    ----------
    model : str, Path or ServedModel
        A model, or its address.
    out : str or Path
        A file that does not exist yet. Its name ends in ``.onnx`` or ``.c``.
    dtype : {"float32", "float64"}
        Data type of the rows that the file takes.

    Returns
    -------
    ExportedModel
        What was written.

    Raises
    ------
    DataError
        If the file exists, or the leaves of the model hold baselines.
    SettingsError
        If the file has another ending, the data type is unknown, or the package onnx is not installed.

    Notes
    -----
    Rows hold the features of training in their order, raw. Categories are their numbers, as ``dcpred import``
    writes them: `features` lists them. Decision values agree with those of `load_model` within rounding of
    single precision.
    """
    path = Path(local_path(out))
    write = _writer(path, dtype)
    check_new_name(path, PARTIAL)
    taken = DataError(f"Cannot export to {path}: it already exists. Remove it or choose another path.")
    if path.exists():
        raise taken
    if not path.absolute().parent.is_dir():
        raise DataError(f"Cannot export to {path}: its folder does not exist. Create it first.")
    flat = flat_model(model if isinstance(model, ServedModel) else load_model(model), dtype)
    data = write(flat)
    if not create_bytes(path, data):
        raise taken
    return ExportedModel(str(path), dtype, flat.features, len(data))


def _writer(path: Path, dtype: str) -> Callable[[FlatModel], bytes]:
    """The function that makes the file. Raises SettingsError."""
    if dtype not in DTYPES:
        raise SettingsError(f"Cannot use dtype={dtype!r}. Choose {' or '.join(DTYPES)}.")
    if path.suffix not in WRITERS:
        raise SettingsError(
            f"Cannot export to {path}: its ending is not one of {', '.join(WRITERS)}. Choose one of them."
        )
    module, function = WRITERS[path.suffix]
    write: Callable[[FlatModel], bytes] = getattr(import_module(f"dcpred.model_export.{module}"), function)
    return write
