"""
What a rebuild keeps in memory of one shadow: versions of aggregates, rows, and which have changed.

    OwnRows      a row per aggregate: version and row stand side by side, found by one look
    SharedRows   rows of any key: the version gate, then the keys, then the folds

Most projections keep a row per aggregate, and of a million events in many rows most time goes into
waiting for what stands far apart in memory. Both fold the same rules with the same outcome.

Used by `rows_in_memory`, which brings what the tables hold; uses the pure cores. Pure; it must not
know a database.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from headrace.projections.definition.fold import Fact, Steps, fold_facts, keys_of, raise_poisoned
from headrace.projections.definition.projection import Projection
from headrace.rebuild.decode import Told
from headrace.subscriptions.gate import Gap, VersionGate

__all__ = ["Memory", "OwnRows", "SharedRows", "remember"]

R = TypeVar("R", bound=BaseModel)


class Memory(Protocol[R]):
    """Rows and versions in memory."""

    def __len__(self) -> int:
        """Returns how many rows, or versions if these are more, it holds."""
        ...

    def unknown_aggregates(self, told: Iterable[Told]) -> set[str]:
        """Returns the aggregates of streams of which it has no version."""
        ...

    def learn_versions(self, aggregate_ids: Iterable[str], versions: Mapping[str, int]) -> None:
        """Takes in what the tables hold of aggregates; those left out begin at version 1."""
        ...

    def take(
        self, told: Sequence[Told], start: int = 0, repeats: list[int] | None = None
    ) -> tuple[int, Gap | None]:
        """Takes streams from a place on, in order, as far as no version is missing.

        Args:
            told: the streams.
            start: the place.
            repeats: the places of streams that were taken before are appended here.

        Returns:
            The place that it has come to, and what is missing before that; None: nothing.

        Raises:
            ProjectionError: an event cannot be folded.
        """
        ...

    def unknown_keys(self, told: Iterable[Told]) -> set[str]:
        """Returns the keys of rows that it needs and does not have."""
        ...

    def learn_rows(self, rows: Mapping[str, R | None]) -> None:
        """Takes in rows as the table has them; None: it has none."""
        ...

    def fold(self) -> None:
        """Folds what was taken and is not folded yet.

        Raises:
            ProjectionError: an event cannot be folded.
        """
        ...

    def take_changes(self) -> tuple[dict[str, int], dict[str, R | None]]:
        """Returns the versions and the rows that have changed since the last time.

        The rows are the memory's own: what is folded next may change them where they are.
        """
        ...

    def clear(self) -> None:
        """Forgets everything; for when all changes were taken."""
        ...


def remember(projection: Projection[R]) -> "Memory[R]":
    """Returns an empty memory for a projection's rows."""
    return OwnRows(projection) if projection.keyed_by_aggregate else SharedRows(projection)


class _Cell(Generic[R]):
    """An aggregate's version and its row.

    Attributes:
        known: whether `row` is what the table has, or newer.
        changed: whether the tables have not been told yet.
        touched: whether that is true of the row as well.
    """

    __slots__ = ("changed", "known", "row", "touched", "version")

    def __init__(self, version: int, *, known: bool) -> None:
        self.version = version
        self.row: R | None = None
        self.known = known
        self.changed = self.touched = False


class OwnRows(Generic[R]):
    """Of a projection that keeps a row per aggregate, if any.

    Args:
        projection: whose rules run; its keys are the aggregates' ids.
    """

    def __init__(self, projection: Projection[R]) -> None:
        self._projection = projection
        self._steps = _steps(projection)
        self._cells: dict[str, _Cell[R]] = {}
        self._changed: list[tuple[str, _Cell[R]]] = []

    def __len__(self) -> int:
        return len(self._cells)

    def unknown_aggregates(self, told: Iterable[Told]) -> set[str]:
        """Returns the aggregates of streams of which it has no version."""
        return {aggregate_id for aggregate_id, _, _ in told} - self._cells.keys()

    def learn_versions(self, aggregate_ids: Iterable[str], versions: Mapping[str, int]) -> None:
        """Takes in what the tables hold of aggregates; those left out begin at version 1."""
        for aggregate_id in aggregate_ids:
            self._cells[aggregate_id] = _Cell(versions.get(aggregate_id, 0), known=False)

    def unknown_keys(self, told: Iterable[Told]) -> set[str]:
        """Returns the keys of rows that it needs and does not have."""
        cells = self._cells
        return {key for key, _, _ in told if key in cells and not cells[key].known}

    def learn_rows(self, rows: Mapping[str, R | None]) -> None:
        """Takes in rows as the table has them; None: it has none."""
        for key, row in rows.items():
            cell = self._cells[key]
            cell.row, cell.known = row, True

    def version(self, aggregate_id: str) -> int:
        """Returns the last version of an aggregate that was taken, or learned; 0 for none."""
        cell = self._cells.get(aggregate_id)
        return cell.version if cell else 0

    def some_rows(self, count: int) -> list[R]:
        """Returns the rows of about so many aggregates, evenly out of all of them."""
        cells = islice(self._cells.values(), 0, None, max(1, len(self._cells) // count))
        return [cell.row for cell in cells if cell.row is not None]

    def take(
        self, told: Sequence[Told], start: int = 0, repeats: list[int] | None = None
    ) -> tuple[int, Gap | None]:
        """Takes and folds streams from a place on, in order, as far as no version is missing.

        Raises:
            ProjectionError: an event cannot be folded.
        """
        place = self.take_next(told, start)
        while place < len(told):
            aggregate_id, version, _ = told[place]
            if gap := _gap(self._cells[aggregate_id].version, version):
                return place, gap
            if repeats is not None:
                repeats.append(place)
            place = self.take_next(told, place + 1)
        return place, None

    def take_next(self, told: Sequence[Told], start: int = 0) -> int:
        """Takes and folds streams from a place on, as long as each is the next of its aggregate.

        Returns:
            The place that it has come to.

        Raises:
            ProjectionError: an event cannot be folded.
        """
        cells, steps = self._cells, self._steps
        for place in range(start, len(told)):
            aggregate_id, version, facts = told[place]
            cell = cells.get(aggregate_id)
            if cell is None:
                cell = cells[aggregate_id] = _Cell(0, known=True)
            if version != cell.version + 1:
                return place
            row = cell.row
            for event, context in facts:
                try:
                    for keys, next_row in steps[type(event)]:
                        reacts = keys is None or keys(event, context)
                        row = next_row(row, event, context, aggregate_id) if reacts else row
                except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
                    raise_poisoned(self._projection, event, context, error)
            cell.row, cell.version = row, version
            if facts:
                cell.touched = True
            if not cell.changed:
                cell.changed = True
                self._changed.append((aggregate_id, cell))
        return len(told)

    def fold(self) -> None:
        """Does nothing: what is taken is folded."""

    def take_changes(self) -> tuple[dict[str, int], dict[str, R | None]]:
        """Returns the versions and the rows that have changed since the last time."""
        versions: dict[str, int] = {}
        rows: dict[str, R | None] = {}
        for aggregate_id, cell in self._changed:
            versions[aggregate_id] = cell.version
            if cell.touched:
                rows[aggregate_id] = cell.row
            cell.changed = cell.touched = False
        self._changed.clear()
        return versions, rows

    def clear(self) -> None:
        """Forgets everything; for when all changes were taken."""
        self._cells.clear()


class SharedRows(Generic[R]):
    """Of a projection whose rows are not an aggregate's each.

    Args:
        projection: whose rules run.
    """

    def __init__(self, projection: Projection[R]) -> None:
        self._projection = projection
        self._steps = _steps(projection)
        self._gate = VersionGate({})
        self._known: set[str] = set()
        self._rows: dict[str, R | None] = {}
        self._changed: dict[str, R | None] = {}
        self._passed: list[Fact] = []

    def __len__(self) -> int:
        return max(len(self._gate), len(self._known), len(self._rows))

    def unknown_aggregates(self, told: Iterable[Told]) -> set[str]:
        """Returns the aggregates of streams of which it has no version."""
        return {aggregate_id for aggregate_id, _, _ in told} - self._known

    def learn_versions(self, aggregate_ids: Iterable[str], versions: Mapping[str, int]) -> None:
        """Takes in what the tables hold of aggregates; those left out begin at version 1."""
        self._known.update(aggregate_ids)
        self._gate.learn(versions)

    def take(
        self, told: Sequence[Told], start: int = 0, repeats: list[int] | None = None
    ) -> tuple[int, Gap | None]:
        """Takes streams from a place on, in order, as far as no version is missing."""
        return self._gate.admit(told, self._passed, start, repeats)

    def unknown_keys(self, told: Iterable[Told]) -> set[str]:  # noqa: ARG002 - the port's argument
        """Returns the keys of rows that it needs and does not have."""
        return keys_of(self._projection, self._passed, self._steps) - self._rows.keys()

    def learn_rows(self, rows: Mapping[str, R | None]) -> None:
        """Takes in rows as the table has them; None: it has none."""
        self._rows.update(rows)

    def fold(self) -> None:
        """Folds what was taken and is not folded yet.

        Raises:
            ProjectionError: an event cannot be folded.
        """
        changes = fold_facts(self._projection, self._rows, self._passed, self._steps)
        self._rows.update(changes)
        self._changed.update(changes)
        self._passed = []

    def take_changes(self) -> tuple[dict[str, int], dict[str, R | None]]:
        """Returns the versions and the rows that have changed since the last time."""
        changed, self._changed = self._changed, {}
        return self._gate.take_moved(), changed

    def clear(self) -> None:
        """Forgets everything; for when all changes were taken."""
        self._gate = VersionGate({})
        self._known.clear()
        self._rows.clear()


def _steps(projection: Projection[Any]) -> Steps:
    # What a function returned may belong to the user, too; rows of declared folds are made here.
    return Steps(projection, in_place=projection.summary_rules is not None)


def _gap(last: int, version: int) -> Gap | None:
    """Returns what is missing before a version that is not the next one; None: it was seen."""
    verdict: Any = VersionGate({"": last}).offer("", version)
    return verdict if isinstance(verdict, Gap) else None
