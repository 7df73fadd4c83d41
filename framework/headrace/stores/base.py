"""
The ports `EventStore` and `CommandLetterStore`: what every adapter promises.

Called by the code that appends, loads or parks; implemented for memory, SQLite and PostgreSQL. The public
suites in `headrace.testing.conformance` test every adapter against these sentences.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Protocol

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream

__all__ = [
    "AppendOutcome",
    "CommandLetter",
    "CommandLetterStore",
    "EventStore",
    "LetterState",
    "Snapshot",
    "StoreIdentity",
    "StoredByCommand",
    "StoredStream",
]

# What commands have stored, by aggregate and command id; of a stream that cannot be read, the error.
StoredByCommand = Mapping[tuple[str, str], EventStream | DamagedStream]


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
    """The state of an aggregate at a version, computed from its stored events; you may lose it.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Which event store this is, for as long as its database lives; a restored backup keeps it.

    Attributes:
        id: a UUID as text.
        seal_key: 32 random bytes that seal the events which leave the store. A secret.
        made_at: when id and key were made, UTC.
    """

    id: str
    seal_key: bytes = field(repr=False)
    made_at: datetime


class EventStore(Protocol):
    """Keeps streams of events, which are the source of truth.

    Reading a stream that has changed since it was stored, or that does not decode, raises
    `DamagedStream`; `survey` goes on with the other streams.

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

    async def find_stored(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        """Returns what commands stored, rejections included, by aggregate id and command id.

        A command that stored nothing is left out; a stream that cannot be read comes as its error.
        All commands together take one round trip.
        """
        ...

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        """Returns an aggregate's streams in version order, without rejections."""
        ...

    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        """Returns streams of all aggregates in position order, rejections included."""
        ...

    async def survey(
        self, *, aggregate_id: str | None = None, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[StoredStream | DamagedStream]:
        """Like `read_all`, of one aggregate or all; a damaged stream comes as its error."""
        ...

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Keeps the newest snapshot of each aggregate, at most one of each in one call.

        An older snapshot of the same state version never replaces a newer one.
        """
        ...

    async def find_snapshot(self, aggregate_id: str) -> Snapshot | None:
        """Returns the newest snapshot that was saved of an aggregate, or None."""
        ...

    async def last_position(self) -> int:
        """Returns the highest position stored, or 0."""
        ...

    async def identity(self) -> StoreIdentity:
        """Returns which store this is; the first call makes the identity, and all calls return the same."""
        ...

    async def aclose(self) -> None:
        """Closes connections; the store is unusable afterwards."""
        ...


class LetterState(StrEnum):
    """What a letter means to the later commands of its aggregate."""

    # They go on.
    PARKED = "parked"
    # They are held behind it.
    HOLDING = "holding"
    # It is one of them.
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLetter:
    """A command that was put aside: it could not be handled, or one before it could not.

    Attributes:
        number: its place in the order of parking; given by the store.
        aggregate_id: whose command; of a message that cannot be read its key, as far as it can be
            stored.
        command_id: its id; of a message that cannot be read its place in the queue.
        name: of the command, as the message says.
        state: what it means to the later commands of its aggregate.
        parked_at: when it was parked first.
        attempts: how often it was parked; a store counts from 1.
        error: for a machine.
        sentence: for a person.
        trace: where the error came from, if a handler raised it; without values.
        key: of the message.
        headers: of the message.
        body: of the message, as it came.
    """

    number: int = 0
    aggregate_id: str
    command_id: str
    name: str
    state: LetterState
    parked_at: datetime
    attempts: int = 1
    error: str
    sentence: str
    trace: str = ""
    key: str
    headers: Mapping[str, str]
    body: bytes


class CommandLetterStore(Protocol):
    """Keeps letters until an operator has their commands retried or skipped.

    Failures of the database itself are raised as they are, and every method may be repeated.
    """

    async def park(self, letters: Sequence[CommandLetter]) -> None:
        """Keeps letters in their order, all or none; durable on return.

        A command that has a letter keeps its place and its first message: its attempts are counted,
        and unless it is only held now, its state, error, sentence and trace are the new ones.
        """
        ...

    async def read(self, *, after: int = 0, limit: int = 1_000) -> list[CommandLetter]:
        """Returns letters in the order of parking, those with numbers above `after`."""
        ...

    async def find(self, number: int) -> CommandLetter | None:
        """Returns a letter, or None."""
        ...

    async def first_in_line(self, aggregate_id: str) -> CommandLetter | None:
        """Returns an aggregate's first letter that is holding or held, or None."""
        ...

    async def find_command(self, command_id: str, aggregate_id: str = "") -> CommandLetter | None:
        """Returns the first letter of a command, or None; of any aggregate where none is named."""
        ...

    async def tally(self) -> dict[tuple[str, LetterState], int]:
        """Returns how many letters there are of each error and state, without reading them."""
        ...

    async def lines(self) -> list[CommandLetter]:
        """Returns the first in line of every aggregate that has a line."""
        ...

    async def finish(self, letter: CommandLetter) -> bool:
        """Takes a letter out unless its command was parked again since it was read.

        Returns whether it was there and is gone.
        """
        ...

    async def count(self) -> int:
        """Returns how many letters there are."""
        ...

    async def aclose(self) -> None:
        """Closes connections; unusable afterwards."""
        ...
