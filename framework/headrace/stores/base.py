"""
The event store's port: what every adapter promises.

Sits between: `_eventing` and `_loading`, which call it, and the adapters for memory, SQLite and
PostgreSQL beside it. The public conformance suite in `headrace.testing.conformance` holds every
adapter to these words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headrace._domain.stream import EventStream

__all__ = ["AppendOutcome", "EventStore", "Snapshot", "StoredStream"]


class AppendOutcome(Enum):
    """What became of one stream in an append; an answer, not an error.

    The two unique constraints decide: (aggregate_id, command_id) and (aggregate_id, version).
    """

    APPENDED = "appended"
    DUPLICATE_COMMAND = "duplicate command"
    VERSION_CONFLICT = "version conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStream:
    """A stream with its place in the order of everything stored.

    `position` grows in commit order, from 1; a reader that has seen position n never later meets a
    new stream at or below n. Positions may leave holes.
    """

    position: int
    stream: EventStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of an aggregate at a version whose events are stored; made from them, no truth.

    Attributes:
        aggregate_type: registered name of its class.
        aggregate_id: whose state it is.
        version: the aggregate's version then.
        state_version: the state version that the class declared then.
        body: the state as JSON.
    """

    aggregate_type: str
    aggregate_id: str
    version: int
    state_version: int
    body: str


class EventStore(Protocol):
    """Keeps streams of events, which are the truth.

    All methods may be called concurrently. Failures of the database itself are raised as they are
    (`sqlalchemy.exc.SQLAlchemyError`, `OSError`) and may be retried by the caller: `append` is safe
    to repeat, because a repeated stream answers DUPLICATE_COMMAND.
    """

    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        """Stores each stream that breaks no constraint; durable on return.

        Answers in the order given. The streams of one aggregate count as a chain: after the first
        of them that is not appended, the later ones of that aggregate are not stored either and
        answer VERSION_CONFLICT. A stream whose version is not the aggregate's next one answers
        VERSION_CONFLICT, also where it would leave a hole. Where both constraints are broken the
        answer is DUPLICATE_COMMAND. Other aggregates are not affected.
        """
        ...

    async def find_command(self, aggregate_id: str, command_id: str) -> EventStream | None:
        """Returns what a command stored on an aggregate, rejections included, or None."""
        ...

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        """Returns an aggregate's streams in version order, without rejections."""
        ...

    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        """Returns streams of all aggregates in position order, rejections included."""
        ...

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Keeps the newest snapshot of each aggregate, at most one of each in one call.

        An older one of the same state version never takes the place of a newer one.
        """
        ...

    async def find_snapshot(self, aggregate_id: str) -> Snapshot | None:
        """Returns the newest snapshot that was saved of an aggregate, or None."""
        ...

    async def last_position(self) -> int:
        """Returns the highest position stored, or 0."""
        ...

    async def aclose(self) -> None:
        """Closes connections; the store is unusable afterwards."""
        ...
