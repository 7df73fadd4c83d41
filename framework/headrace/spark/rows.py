"""
Rows of a read model as bytes, on their way between executors and the driver.

Used by the folds, which have row models; feeds the database's bulk loading, which wants plain
values. Exact for every type a row may hold, not-a-number included; therefore not JSON.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel

from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.json_values import json_text
from headrace.projections.definition.projection import Projection

__all__ = ["RowCodec"]

R = TypeVar("R", bound=BaseModel)

_PYTHON_TYPES: dict[ColumnKind, Any] = {
    ColumnKind.TEXT: str,
    ColumnKind.INTEGER: int,
    ColumnKind.FLOAT: float,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.DECIMAL: Decimal,
    ColumnKind.DATE: date,
    ColumnKind.TIMESTAMP: datetime,
    ColumnKind.UUID: UUID,
    ColumnKind.BYTES: bytes,
    ColumnKind.JSON: str,
}


class RowCodec(Generic[R]):
    """Encodes the rows of one projection as their field values in order, in msgpack.

    Args:
        projection: whose rows.
    """

    def __init__(self, projection: Projection[R]) -> None:
        fields = projection.shape.fields
        types = [
            _PYTHON_TYPES[field.kind] | None if field.optional else _PYTHON_TYPES[field.kind]
            for field in fields
        ]
        self._shape = projection.shape
        self._key = projection.key_form
        self._json = [at for at, field in enumerate(fields) if field.kind is ColumnKind.JSON]
        self.columns = tuple(field.name for field in fields)
        self._places = [self.columns.index(name) for name in projection.key_form.names]
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(tuple[tuple(types)]).decode  # type: ignore[misc]  # a tuple type made at run time

    def encode(self, row: R) -> bytes:
        """Encodes a row in its canonical form."""
        values = self._shape.stored(row)
        return self._encode([values[column] for column in self.columns])

    def encode_values(self, values: Sequence[Any]) -> bytes:
        """Encodes a row that is already values in the order of `columns`, as a database has them."""
        plain = list(values)
        for at in self._json:
            if plain[at] is not None and not isinstance(plain[at], str):
                plain[at] = json_text(plain[at])
        return self._encode(plain)

    def key_of(self, values: Sequence[Any]) -> str:
        """Returns the key of a row that is values in the order of `columns`."""
        return self._key.join([values[at] for at in self._places])

    def values(self, data: bytes) -> tuple[Any, ...]:
        """Decodes into values in the order of `columns`."""
        decoded: tuple[Any, ...] = self._decode(data)
        return decoded

    def row(self, data: bytes) -> R:
        """Decodes into the row model."""
        return self._shape.load(dict(zip(self.columns, self._decode(data), strict=True)))
