"""
Aggregates from the event store: from a snapshot and the events after it.

Used by the workers, each of which owns its aggregate while that has commands; uses the event store.
"""

from collections.abc import Collection

from headrace._runtime.backoff import Backoff
from headrace.aggregates.cache import LiveAggregate
from headrace.aggregates.snapshots import Snapshots
from headrace.domain.aggregate import Aggregate
from headrace.domain.stream import EventStream
from headrace.errors import AggregateNotFound, DamagedStream
from headrace.stores.base import EventStore

__all__ = ["Repository"]


class Repository:
    """Loads live aggregates.

    Args:
        store: where the events are.
        snapshots: from which loading may start.
        backoff: how long to wait before a failed read is repeated.
    """

    def __init__(self, *, store: EventStore, snapshots: Snapshots, backoff: Backoff) -> None:
        self._store = store
        self._snapshots = snapshots
        self._backoff = backoff

    async def load(
        self, aggregate_type: type[Aggregate], aggregate_id: str
    ) -> LiveAggregate | None:
        """Reads an aggregate from its snapshot and later events; None when it has no events.

        What the database refuses is tried again without a limit.

        Raises:
            AggregateNotFound: the id belongs to an aggregate of another class.
            UnknownMessageType: a stored event's type is not registered.
            SerializationError: a stored event does not fit its type.
            DefinitionError: the aggregate has no `@applies` method for a stored event.
        """
        live = await self._from_snapshot(aggregate_type, aggregate_id)
        version = live.aggregate.version if live is not None else 0
        streams = await self._backoff.persist(
            lambda: self._store.read_stream(aggregate_id, after_version=version),
            what="read an aggregate's events",
        )
        if live is None:
            if not streams:
                return None
            check_type(aggregate_type, streams[0].aggregate_type, aggregate_id)
            live = LiveAggregate(aggregate_type(aggregate_id))
        for stream in streams:
            assert stream.version is not None, "read_stream returns no rejections"
            live.aggregate.replay(stream.version, stream.events)
            live.events_unsaved += len(stream.events)
        return live

    async def _from_snapshot(
        self, aggregate_type: type[Aggregate], aggregate_id: str
    ) -> LiveAggregate | None:
        snapshot = await self._backoff.persist(
            lambda: self._snapshots.find(aggregate_type, aggregate_id), what="look for a snapshot"
        )
        if snapshot is None:
            return None
        check_type(aggregate_type, snapshot.aggregate_type, aggregate_id)
        return self._snapshots.restore(aggregate_type, snapshot)

    async def exists(self, aggregate_id: str) -> bool:
        """Whether the store holds an event of the aggregate."""
        streams = await self._backoff.persist(
            lambda: self._store.read_stream(aggregate_id, to_version=1),
            what="look for an aggregate",
        )
        return bool(streams)

    async def has_newer(self, aggregate_id: str, version: int) -> bool:
        """Whether the store holds an event of the aggregate after this version."""
        streams = await self._backoff.persist(
            lambda: self._store.read_stream(
                aggregate_id, after_version=version, to_version=version + 1
            ),
            what="look for newer events",
        )
        return bool(streams)

    async def find_commands(
        self, aggregate_id: str, command_ids: Collection[str]
    ) -> dict[str, EventStream | DamagedStream]:
        """Returns by id what commands stored on the aggregate, rejections included.

        One that stored nothing is left out; of a stream that cannot be read there is the error.
        """
        commands = [(aggregate_id, each) for each in command_ids]
        found = await self._backoff.persist(
            lambda: self._store.find_stored(commands), what="look for the outcomes of commands"
        )
        return {command_id: each for (_, command_id), each in found.items()}


def check_type(aggregate_type: type[Aggregate], found: str, aggregate_id: str) -> None:
    """Raises AggregateNotFound unless the id belongs to the class that was asked for."""
    if found != aggregate_type.aggregate_name:
        raise AggregateNotFound(
            f"{aggregate_id!r} is a {found}, there is no {aggregate_type.aggregate_name} of that id"
        )
