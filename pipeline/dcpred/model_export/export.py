"""Write a model as a file that predicts without dcpred."""

from collections.abc import Callable
from pathlib import Path

from dcpred.model_export.c_source import c_bytes
from dcpred.model_export.flat_model import DTYPES, FlatModel, flat_model
from dcpred.model_export.onnx_graph import onnx_bytes
from dcpred.public.results import PublicResult
from dcpred.serving.served_model import ServedModel, load_model
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.result_fields import result_class, result_field, size
from dcpred_tasks.storage.addresses import local_path
from dcpred_tasks.storage.atomic_files import PARTIAL, check_new_name, create_bytes

WRITERS = {".onnx": onnx_bytes, ".c": c_bytes}


@result_class
class ExportedModel(PublicResult):
    """A written model file."""

    path: str = result_field(
        "Path of the file.", line="file", text=lambda r: f"{r['path']}  ({size(r['n_bytes'])})"
    )
    dtype: str = result_field("Data type of the rows that it takes.")
    features: tuple[str, ...] = result_field(
        "The name of each feature of a row, with the numbers of its categories if it has any.",
        line="rows",
        text=lambda r: f"{len(r['features']):,} features of {r['dtype']}",
    )
    n_bytes: int = result_field("Size of the file in bytes.")


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
    dtype : {"float32", "float64"}, default "float32"
        Data type of the rows that the file takes. float64 suits dates and large numbers.

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
    writes them: the result lists them. Decision values agree with those of dcpred within rounding of
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
    return WRITERS[path.suffix]
