"""
What readers of events have parked, in the table `parked`: the one place that writes these rows.

    reader                    name               generation   a row is
    a projection              its name           its own      an aggregate whose later events wait
    event handlers            handlers:NAME      0            the same
    a process manager         process:NAME       0            the same
    a process's instances     instances:NAME     0            an instance, by its key, for which events wait

A row holds the place of a message and no event: what waits is read from the event store when it is
taken up. Every method works within the caller's transaction, so what is parked, the rows and the versions
change together.

Used by the readers of events and by `headrace parked`. It knows no event. Commands are
parked in the same table, whole and in the database of events: see `headrace.stores.letters`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, Update, delete, func, select, update

from headrace._runtime.tracebacks import storable, traceback_of
from headrace.stores.base import LetterState
from headrace.stores.database.tables import (
    UtcDateTime,
    parked_rows,
    projection_versions,
    projections,
)

__all__ = [
    "ERROR_CHARACTERS_MAX",
    "Letter",
    "ParkedStore",
    "new_row",
    "read_live_letters",
    "read_parked_counts",
]

# Characters of an error that is stored with a letter: enough for the event, the handler and its message.
ERROR_CHARACTERS_MAX: Final = 2_000

_columns = parked_rows.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An aggregate, or an instance of a process, that a reader of events has parked.

    Attributes:
        aggregate_id: whose events wait; of an instance its key.
        version: the last one that was handled; the failure is behind it. 0 of an instance.
        queue: where the message stands that could not be handled; None: it is not known, as it came
            from the event store.
        offset: its place there.
        parked_at: since when.
        held: messages that wait, the first one included.
        retries: how often taking it up has failed since.
        error: what went wrong last.
        error_name: its name; empty where an older version has parked it.
        traceback: where; empty where an older version has parked it.
    """

    aggregate_id: str
    version: int
    queue: tuple[str, int] | None
    offset: int | None
    parked_at: datetime
    held: int
    retries: int
    error: str
    error_name: str = ""
    traceback: str = ""


class ParkedStore:
    """What one reader of events has parked.

    Args:
        name: the reader's in the table.
        generation: of a projection; 0 of all others.
    """

    def __init__(self, name: str, generation: int = 0) -> None:
        self.name = name
        self._place = {"name": name, "generation": generation}
        self._mine = (_columns.name == name, _columns.generation == generation)

    def add(
        self,
        connection: Connection,
        aggregate_id: str,
        error: Exception,
        *,
        now: datetime,
        place: tuple[str, int, int] | None,
        sentence: str | None = None,
        **columns: Any,
    ) -> None:
        """Parks what is not parked yet.

        Args:
            connection: in a transaction that can write.
            aggregate_id: the aggregate, or an instance's key.
            error: why.
            now: since when.
            place: topic, queue and offset of the message that failed; None: it is not known.
            sentence: why, for a person; by default the error's own.
            columns: others, such as the version that was handled, where it is kept nowhere else.
        """
        topic, queue_id, offset = place or (None, None, None)
        row = new_row(error, sentence) | {
            "aggregate_id": aggregate_id,
            "topic": topic,
            "queue_id": queue_id,
            "message_offset": offset,
            "parked_at": now,
        }
        connection.execute(parked_rows.insert().values(self._place | row | columns))

    def hold(self, connection: Connection, aggregate_id: str, messages: int = 1) -> bool:
        """Notes that more messages wait; False: their aggregate is not parked (any more)."""
        done = connection.execute(self.changing(aggregate_id).values(held=_columns.held + messages))
        return done.rowcount == 1

    def fail(
        self,
        connection: Connection,
        aggregate_id: str,
        error: Exception,
        *,
        sentence: str | None = None,
        **columns: Any,
    ) -> None:
        """Notes that taking up what is parked has failed once more, and other columns with it."""
        more = {"attempts": _columns.attempts + 1} | columns
        connection.execute(
            self.changing(aggregate_id).values(**_reason_of(error, sentence), **more)
        )

    def release(self, connection: Connection, letter: Letter) -> bool:
        """Ends what was parked, unless a message came for it since it was read."""
        gone = connection.execute(
            delete(parked_rows).where(
                *self._mine,
                _columns.aggregate_id == letter.aggregate_id,
                _columns.held == letter.held,
            )
        )
        return gone.rowcount == 1

    def count(self, connection: Connection) -> int:
        """Returns how many aggregates or instances are parked."""
        found = select(func.count()).select_from(parked_rows).where(*self._mine)
        return connection.execute(found).scalar_one()

    def among(self, connection: Connection, aggregate_ids: Collection[str]) -> set[str]:
        """Returns which of these are parked."""
        if not aggregate_ids:
            return set()
        found = select(_columns.aggregate_id).where(
            *self._mine, _columns.aggregate_id.in_(aggregate_ids)
        )
        return set(connection.scalars(found))

    def read(self, connection: Connection, aggregate_id: str | None = None) -> list[Letter]:
        """Returns what is parked, the oldest first; of one aggregate or instance if it is given."""
        query = _letters_query().where(*self._mine)
        if aggregate_id is not None:
            query = query.where(_columns.aggregate_id == aggregate_id)
        return [_letter_of(row) for row in connection.execute(query).mappings()]

    def find(self, connection: Connection, aggregate_id: str) -> Letter | None:
        """Returns what is parked of one aggregate or instance, or None."""
        found = self.read(connection, aggregate_id)
        return found[0] if found else None

    def version(self, connection: Connection, aggregate_id: str) -> int | None:
        """Returns the version that is kept here of a parked aggregate; None: none is."""
        return connection.scalar(
            select(_columns.version).where(*self._mine, _columns.aggregate_id == aggregate_id)
        )

    def changing(self, aggregate_id: str) -> Update:
        """Returns the statement that changes what is parked of an aggregate, yet without values."""
        return update(parked_rows).where(*self._mine, _columns.aggregate_id == aggregate_id)


def new_row(error: Exception, sentence: str | None = None) -> dict[str, Any]:
    """Returns the columns of what was just parked that are the same for all readers."""
    waits = {"held": 1, "attempts": 1, "state": LetterState.PARKED.value}
    return {"command_id": "", "command": "", **waits, **_reason_of(error, sentence)}


def _reason_of(error: Exception, sentence: str | None) -> Mapping[str, str]:
    """Returns the columns that say why something is parked: its name, a sentence, and a traceback."""
    return {
        "error": type(error).__name__,
        "sentence": storable(str(error) if sentence is None else sentence)[:ERROR_CHARACTERS_MAX],
        "traceback": traceback_of(error),
    }


def read_live_letters(connection: Connection) -> list[tuple[str, Letter]]:
    """Returns what all readers have parked, each with the reader's name; of projections the live ones."""
    # The sort is stable: within a name the oldest is first.
    query = _letters_query().where(*_live())
    rows = connection.execute(query).mappings().all()
    return [(row["name"], _letter_of(row)) for row in sorted(rows, key=lambda row: row["name"])]


def read_parked_counts(connection: Connection) -> list[tuple[str, int, datetime]]:
    """Returns how much each reader has parked, of projections the live ones, and since when the oldest."""
    oldest = func.min(_columns.parked_at, type_=UtcDateTime())
    query = select(_columns.name, func.count(), oldest).where(*_live())
    rows = connection.execute(query.group_by(_columns.name).order_by(_columns.name))
    return [(name, count, since) for name, count, since in rows]


def _live() -> tuple[Any, ...]:
    """Returns what holds for rows of events, without those of generations that no reader uses."""
    live = projections.c
    # Others have no row there, and the generation 0.
    generation = (
        select(func.coalesce(func.max(live.generation), 0))
        .where(live.name == _columns.name)
        .correlate(parked_rows)
        .scalar_subquery()
    )
    return _columns.generation == generation, _columns.command_id == ""


def _letters_query() -> Select[Any]:
    versions = projection_versions.c
    return (
        select(parked_rows, func.coalesce(_columns.version, versions.version, 0).label("done"))
        .outerjoin_from(
            parked_rows,
            projection_versions,
            (versions.name == _columns.name)
            & (versions.generation == _columns.generation)
            & (versions.aggregate_id == _columns.aggregate_id),
        )
        .order_by(_columns.parked_at, _columns.aggregate_id)
    )


def _letter_of(row: RowMapping) -> Letter:
    return Letter(
        aggregate_id=row["aggregate_id"],
        version=row["done"],
        queue=None if row["topic"] is None else (row["topic"], row["queue_id"]),
        offset=row["message_offset"],
        parked_at=row["parked_at"],
        held=row["held"],
        retries=row["attempts"] - 1,
        error=row["sentence"],
        error_name=row["error"],
        traceback=row["traceback"],
    )
