"""
The event store in this process's memory: the reference adapter.

Implements the `EventStore` port on two dictionaries. It keeps the values themselves, which are frozen,
and needs no serializer. For tests and first steps: nothing survives the process.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from operator import attrgetter

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream
from headrace.stores.base import (
    AppendOutcome,
    Snapshot,
    StoredByCommand,
    StoredStream,
    StoreIdentity,
)
from headrace.stores.chain import decide
from headrace.stores.database.identity import new_identity

__all__ = ["MemoryEventStore"]

_position = attrgetter("position")


class MemoryEventStore:
    """Keeps everything in memory, in the words of the `EventStore` port.

    No method gives way to another task, so each is one step for everybody else.
    """

    def __init__(self) -> None:
        self._log: list[StoredStream] = []
        self._commands: dict[tuple[str, str], EventStream] = {}
        self._versions: dict[str, list[EventStream]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._identity = new_identity()

    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        """Stores each stream that breaks no constraint; see `EventStore.append`."""
        heads = {
            stream.aggregate_id: len(self._versions.get(stream.aggregate_id, ()))
            for stream in streams
        }
        outcomes = decide(streams, heads, self._commands.keys())
        for stream, outcome in zip(streams, outcomes, strict=True):
            if outcome is AppendOutcome.APPENDED:
                self._keep(stream)
        return outcomes

    async def find_command(self, aggregate_id: str, command_id: str) -> EventStream | None:
        """Returns what a command stored on an aggregate, rejections included, or None."""
        return self._commands.get((aggregate_id, command_id))

    async def find_stored(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        """Returns what commands stored; see `EventStore.find_stored`."""
        return {each: self._commands[each] for each in commands if each in self._commands}

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        """Returns an aggregate's streams in version order, without rejections."""
        end = None if to_version is None else max(to_version, 0)
        return self._versions.get(aggregate_id, [])[max(after_version, 0) : end]

    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        """Returns streams of all aggregates in position order, rejections included."""
        start = bisect_right(self._log, after_position, key=_position)
        return self._log[start : start + limit]

    async def survey(
        self, *, aggregate_id: str | None = None, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[StoredStream | DamagedStream]:
        """Returns streams in position order; memory damages none."""
        if aggregate_id is None:
            return await self.read_all(after_position=after_position, limit=limit)
        own = [each for each in self._log if each.stream.aggregate_id == aggregate_id]
        return [each for each in own if each.position > after_position][:limit]

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Keeps the newest snapshot of each aggregate; see `EventStore.save_snapshots`."""
        for snapshot in snapshots:
            kept = self._snapshots.get(snapshot.aggregate_id)
            if (
                kept is None
                or kept.version < snapshot.version
                or kept.state_version != snapshot.state_version
            ):
                self._snapshots[snapshot.aggregate_id] = snapshot

    async def find_snapshot(self, aggregate_id: str) -> Snapshot | None:
        """Returns the newest snapshot that was saved of an aggregate, or None."""
        return self._snapshots.get(aggregate_id)

    async def last_position(self) -> int:
        """Returns the highest position stored, or 0."""
        return len(self._log)

    async def identity(self) -> StoreIdentity:
        """Returns which store this is: another one in each process."""
        return self._identity

    async def aclose(self) -> None:
        """Does nothing: there is no connection to close."""

    def _keep(self, stream: EventStream) -> None:
        self._commands[stream.aggregate_id, stream.command_id] = stream
        if stream.version is not None:
            self._versions.setdefault(stream.aggregate_id, []).append(stream)
        self._log.append(StoredStream(position=len(self._log) + 1, stream=stream))
