"""Where model.json keeps the schema of the data that a model was trained on.

A schema that encodes features defines the model: it is stored in the body, which the hash covers. A schema of
numbers alone holds only names, target and ids: it is stored in the provenance, and the hash stays the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model.parts import Parts
from dcpred_tasks.schema.schema import Schema, read_schema

KEY = "schema"


def schema_documents(schema: Schema | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a schema adds to the body and to the provenance of a model."""
    told: dict[str, Any] = {} if schema is None else {KEY: schema.document()}
    return (told, {}) if schema is not None and schema.encodes else ({}, told)


def read_model_schema(body: Mapping[str, Any], provenance: object, path: str) -> Schema | None:
    """The stored schema of a model, None where it has none. Raises ModelFormatError for a damaged schema in
    the body; a damaged one in the provenance, which no hash covers, is ignored.
    """
    told = body.get(KEY)
    if told is None:
        try:
            told = provenance.get(KEY) if isinstance(provenance, dict) else None
            found = None if told is None else read_schema(told, path)
        except DataError:
            return None
        return None if found is None or found.encodes else found
    try:
        return read_schema(told, path)
    except DataError as error:
        raise ModelFormatError(str(error)) from None


def parts_of_table(schema: Schema | None, names: Sequence[str] | None, n_features: int) -> Parts:
    """The parts that decision values are divided into: the columns of the training table where its schema is
    known, else the features.
    """
    if schema is None or len(schema.features) != n_features:
        return Parts.of_features(
            names if names is not None and len(names) == n_features else None, n_features
        )
    numbers = [j for j, (_, span) in enumerate(schema.spans) for _ in range(span.start, span.stop)]
    return Parts(tuple(column.name for column in schema.sources), tuple(numbers))
