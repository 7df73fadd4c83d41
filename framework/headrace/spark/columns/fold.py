"""
Exported events folded in columns: every core reduces files, and what they make is reduced once more.

    files ─▶ threads: read ─▶ touches ─▶ reduced ─▶ reduced together ─▶ rows as plain values

Arrow and NumPy do the work outside of the interpreter's lock, so threads are enough. Used by `base`;
uses `files`, `touches` and `groups`. It must not know a database.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ProjectionError
from headrace.projections.definition.declared import EXACT, joined
from headrace.projections.definition.shape import ColumnKind, RowField
from headrace.projections.definition.summaries import Operation
from headrace.spark.columns.files import TypedFile, read_events
from headrace.spark.columns.groups import Brought, Groups, reduced
from headrace.spark.columns.touches import ColumnPlan

__all__ = ["fold_files", "rows_of"]

# Rows of parts that wait to be reduced together, besides as many as the last time has left.
_WAITING_MAX: Final = 2_000_000
# Rows that are made of columns at once.
_ROWS_MAX: Final = 50_000


def fold_files(plan: ColumnPlan, files: Sequence[TypedFile]) -> Groups | None:
    """Returns what files make of each row; None: nothing touches one.

    Raises:
        ProjectionError: a file cannot be read, or a value does not fit.
    """
    workers = os.cpu_count() or 1

    def parts() -> Iterator[Groups]:
        with ThreadPoolExecutor(workers, "headrace-columns") as threads:
            # Some at a time, so that what they make is reduced before there is more of it.
            for place in range(0, len(files), 2 * workers):
                for found in threads.map(partial(_fold_file, plan), files[place:][: 2 * workers]):
                    if found is not None:
                        yield found

    return _gathered(plan, parts())


def rows_of(plan: ColumnPlan, groups: Groups) -> Iterator[tuple[Any, ...]]:
    """Yields rows as their values in the order of the row model's fields."""
    for start in range(0, len(groups), _ROWS_MAX):
        some = slice(start, min(start + _ROWS_MAX, len(groups)))
        keys = _keys(plan, groups.keys[some].to_pylist())
        columns = [
            keys[field.name]
            if field.name in keys
            else _column(plan, field, groups.kept.get(field.name), some)
            for field in plan.projection.shape.fields
        ]
        yield from zip(*columns, strict=True)


def _keys(plan: ColumnPlan, texts: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Returns the values of each field of the key by its name.

    Raises:
        ProjectionError: a key is not of its type.
    """
    form = plan.projection.key_form
    if form.is_text:
        return {form.names[0]: texts}
    try:
        columns = zip(*map(form.values, texts), strict=True)
    except ValueError as error:
        raise ProjectionError(f"projection {plan.projection.name}: {error}") from error
    return dict(zip(form.names, columns, strict=True))


def _fold_file(plan: ColumnPlan, file: TypedFile) -> Groups | None:
    def parts() -> Iterator[Groups]:
        for events in read_events(file, plan):
            for touches in plan.touches(file.event_type, events):
                yield reduced([touches], plan.aims)

    try:
        return _gathered(plan, parts())
    except (pa.ArrowException, OverflowError) as error:
        raise ProjectionError(
            f"projection {plan.projection.name}: {file.path} cannot be folded in columns: {error};"
            " use --engine replay"
        ) from error


def _gathered(plan: ColumnPlan, parts: Iterable[Groups]) -> Groups | None:
    """Returns parts reduced together, now and then on the way, or there would be too many of them."""
    waiting: list[Groups] = []
    rows = kept = 0
    for part in parts:
        waiting.append(part)
        rows += len(part)
        if rows > _WAITING_MAX + kept and len(waiting) > 1:
            waiting = [reduced(waiting, plan.aims)]
            rows, kept = 0, len(waiting[0])
    if len(waiting) > 1:
        return reduced(waiting, plan.aims)
    return waiting[0] if waiting else None


def _column(plan: ColumnPlan, field: RowField, kept: Brought | None, some: slice) -> Sequence[Any]:
    start = plan.projection.shape.stored_value(field.name, plan.folds.start.get(field.name))
    operation = plan.folds.operations.get(field.name)
    if kept is None or operation is None or (operation is Operation.FIRST and start is not None):
        return [start] * (some.stop - some.start)
    found = _values(field.kind, kept, some)
    has = kept.has[some].tolist()
    if operation is Operation.LAST:
        return [value if one else start for value, one in zip(found, has, strict=True)]
    return [
        joined(operation, (start, value)) if one else start
        for value, one in zip(found, has, strict=True)
    ]


def _values(kind: ColumnKind, kept: Brought, some: slice) -> list[Any]:
    values = kept.values[some]
    if kind is ColumnKind.TIMESTAMP:
        moments: list[Any] = values.cast(pa.timestamp("us")).to_pylist()
        return [each and each.replace(tzinfo=UTC) for each in moments]
    found: list[Any] = values.to_pylist()
    if kind is ColumnKind.DECIMAL:
        assert kept.places is not None, "every decimal has its places"
        return list(_decimals(found, kept.places[some].tolist()))
    return found


def _decimals(numbers: Iterable[Decimal | None], places: Iterable[int]) -> Iterator[Decimal | None]:
    for number, count in zip(numbers, places, strict=True):
        if number is None:
            yield None
        else:
            yield number.quantize(Decimal(1).scaleb(-count), context=EXACT)
