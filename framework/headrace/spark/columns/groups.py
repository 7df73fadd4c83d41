"""
Rows of a read model while they are gathered from columns: many contributions to a key become one.

    contributions, any number per key ─▶ reduced ─▶ one per key ─▶ together with others ─▶ reduced …

What is reduced is of the same form as what it was made of, so that parts may be reduced in any order
and by any number of threads. Of several values the one that counts is found by the order of their
events, two numbers, and not by the order in which parts come.

Used by `touches` and `fold`; works on arrays. Pure; it must not know files or a database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.definition.summaries import Operation
from headrace.spark.columns.terms import COLUMN_TYPES
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX

__all__ = ["Brought", "ColumnAim", "Groups", "reduced"]

Numbers = npt.NDArray[Any]

# Sums that come near are refused: a sum that has left its bits is another number.
_INTEGER_SUM_MAX: Final = 1 << 62
_DECIMAL_SUM_MAX: Final = 10 ** (38 - DECIMAL_PLACES_MAX - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAim:
    """What a column of the read model keeps.

    Attributes:
        name: of the column.
        kind: of its values.
        operation: what it keeps of them.
    """

    name: str
    kind: ColumnKind
    operation: Operation

    @property
    def ordered(self) -> bool:
        """Whether it depends on the order of events: equal decimals may differ in their places."""
        if self.operation in {Operation.FIRST, Operation.LAST}:
            return True
        alike = self.kind not in {ColumnKind.DECIMAL, ColumnKind.FLOAT}
        return self.operation is not Operation.SUM and not alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What is known of one column, for each key or contribution.

    Attributes:
        values: of the column.
        has: whether there is a contribution; of a last value also where it is None.
        places: of decimals, how many they were written with.
        order: where the events stand, as two numbers; None where it does not matter.
    """

    values: pa.Array
    has: npt.NDArray[np.bool_]
    places: Numbers | None = None
    order: tuple[Numbers, Numbers] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Contributions to rows; once reduced, one for each key.

    Attributes:
        keys: of the rows.
        kept: by column; columns to which nothing contributes are left out.
    """

    keys: pa.Array
    kept: Mapping[str, Brought]

    def __len__(self) -> int:
        return len(self.keys)


def reduced(parts: Sequence[Groups], aims: Sequence[ColumnAim]) -> Groups:
    """Returns contributions as one for each key.

    Raises:
        ProjectionError: a sum may leave its digits.
    """
    whole = _together(parts, aims)
    encoded = whole.keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.intp)
    count = len(encoded.dictionary)
    kept: dict[str, Brought] = {}
    for aim in aims:
        found = whole.kept.get(aim.name)
        if found is not None:
            reduce = _summed if aim.operation is Operation.SUM else _picked
            kept[aim.name] = reduce(aim, found, codes, count)
    return Groups(keys=encoded.dictionary, kept=kept)


def _together(parts: Sequence[Groups], aims: Sequence[ColumnAim]) -> Groups:
    if len(parts) == 1:
        return parts[0]
    kept: dict[str, Brought] = {}
    for aim in aims:
        some = [part.kept.get(aim.name) for part in parts]
        if any(each is not None for each in some):
            filled = [
                _nothing(aim, len(part)) if each is None else each
                for part, each in zip(parts, some, strict=True)
            ]
            kept[aim.name] = _concatenated(filled)
    return Groups(keys=pa.concat_arrays([part.keys for part in parts]), kept=kept)


def _nothing(aim: ColumnAim, length: int) -> Brought:
    zeros = np.zeros(length, np.int64)
    return Brought(
        values=pa.nulls(length, COLUMN_TYPES[aim.kind]),
        has=np.zeros(length, np.bool_),
        places=zeros if aim.kind is ColumnKind.DECIMAL else None,
        order=(zeros, zeros) if aim.ordered else None,
    )


def _concatenated(some: Sequence[Brought]) -> Brought:
    whole = Brought(
        values=pa.concat_arrays([each.values for each in some]),
        has=np.concatenate([each.has for each in some]),
    )
    if some[0].places is not None:
        whole = replace(whole, places=np.concatenate([each.places for each in some]))
    if some[0].order is not None:
        orders = zip(*(each.order for each in some if each.order is not None), strict=True)
        major, minor = (np.concatenate(each) for each in orders)
        whole = replace(whole, order=(major, minor))
    return whole


def _summed(aim: ColumnAim, kept: Brought, codes: Numbers, count: int) -> Brought:
    _check_sum(aim, kept, codes)
    has = np.zeros(count, np.bool_)
    has[codes[kept.has]] = True
    if aim.kind is not ColumnKind.DECIMAL:
        total = np.zeros(count, np.int64)
        np.add.at(total, codes, pc.fill_null(kept.values, 0).to_numpy(zero_copy_only=False))
        return Brought(values=pa.array(total), has=has)
    assert kept.places is not None, "every decimal has its places"
    places = np.zeros(count, np.int64)
    np.maximum.at(places, codes[kept.has], kept.places[kept.has])
    table = pa.table({"code": codes, "value": kept.values})
    sums = table.group_by("code", use_threads=False).aggregate([("value", "sum")])
    at = np.empty(count, np.int64)
    at[sums["code"].to_numpy()] = np.arange(count)
    values = sums["value_sum"].combine_chunks().take(pa.array(at))
    return Brought(values=values.cast(COLUMN_TYPES[aim.kind]), has=has, places=places)


def _check_sum(aim: ColumnAim, kept: Brought, codes: Numbers) -> None:
    """Refuses a sum that may leave its digits, by a look at the largest number if that is enough."""
    most = _INTEGER_SUM_MAX if aim.kind is ColumnKind.INTEGER else _DECIMAL_SUM_MAX
    ends = pc.min_max(kept.values)
    largest = max((abs(each) for each in ends.as_py().values() if each is not None), default=0)
    if largest * len(codes) <= most:
        return
    sizes = np.abs(
        pc.fill_null(kept.values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
    )
    if np.bincount(codes, weights=sizes).max() > most:
        raise ProjectionError(
            f"the sum in column {aim.name} may have more digits than columns hold; use --engine replay"
        )


def _picked(aim: ColumnAim, kept: Brought, codes: Numbers, count: int) -> Brought:
    largest: list[tuple[Numbers, bool]] = []
    if aim.operation in {Operation.MIN, Operation.MAX}:
        largest.append((_ranks(kept.values, aim.kind), aim.operation is Operation.MAX))
    if kept.order is not None:
        # Of equal ones the first is kept.
        largest += [(each, aim.operation is Operation.LAST) for each in kept.order]
    rows = np.flatnonzero(kept.has)
    for numbers, wants_largest in largest:
        at, some = codes[rows], numbers[rows]
        best = np.full(count, _extreme(numbers, smallest=wants_largest), numbers.dtype)
        (np.maximum if wants_largest else np.minimum).at(best, at, some)
        rows = rows[some == best[at]]
    found = np.full(count, -1, np.int64)
    found[codes[rows]] = rows
    has = found >= 0
    return Brought(
        values=kept.values.take(pa.array(found, mask=~has)),
        has=has,
        places=None if kept.places is None else kept.places[found],
        order=None if kept.order is None else (kept.order[0][found], kept.order[1][found]),
    )


def _ranks(values: pa.Array, kind: ColumnKind) -> Numbers:
    """Returns numbers that are ordered as the values are; of None it does not matter which."""
    if kind in {ColumnKind.TEXT, ColumnKind.DECIMAL}:
        values = pc.rank(values, tiebreaker="dense").cast(pa.int64())
    elif kind is ColumnKind.DATE:
        values = values.cast(pa.int32())
    elif kind is not ColumnKind.FLOAT:
        values = values.cast(pa.int64())
    ranks: Numbers = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False)
    return ranks


def _extreme(numbers: Numbers, *, smallest: bool) -> Any:
    if numbers.dtype.kind == "f":
        return -np.inf if smallest else np.inf
    info = np.iinfo(numbers.dtype)
    return info.min if smallest else info.max
