"""
Rows of a read model as columns, of the types that tables in a lake have.

    str, int, float, bool        string, bigint, double, boolean
    Decimal                      decimal(38,18): the same number, without its trailing zeros
    date, datetime               date, timestamp

Used by `read_model` and `features`. It must not know Spark or a table format.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX
from headrace.spark.sql import SPARK_TYPES

__all__ = ["rows_to_arrow", "schema_of", "spark_columns"]

_ARROW_TYPES: Final[Mapping[ColumnKind, pa.DataType]] = {
    ColumnKind.TEXT: pa.string(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.FLOAT: pa.float64(),
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.DECIMAL: pa.decimal128(38, DECIMAL_PLACES_MAX),
    ColumnKind.DATE: pa.date32(),
    ColumnKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def schema_of(projection: Projection[Any]) -> pa.Schema:
    """Returns a column for each field of the row model; null is allowed in each."""
    fields = projection.shape.fields
    return pa.schema([(field.name, _ARROW_TYPES[field.kind]) for field in fields])


def spark_columns(projection: Projection[Any]) -> Sequence[str]:
    """Returns name and type of each of these columns in Spark's words."""
    fields = projection.shape.fields
    return [f"`{field.name}` {SPARK_TYPES[field.kind]}" for field in fields]


def rows_to_arrow(projection: Projection[Any], rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Returns rows, each as its values in the order of the fields, as columns.

    Raises:
        ProjectionError: a value does not fit its column; names the column.
    """
    schema = schema_of(projection)
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        try:
            arrays.append(pa.array(column, field.type))
        except (OverflowError, pa.ArrowException) as error:
            raise ProjectionError(
                f"projection {projection.name}: a value of {field.name} does not fit {field.type} in"
                f" the lake: {error}"
            ) from error
    return pa.table(arrays, schema=schema)
