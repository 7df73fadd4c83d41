"""
Which messages of the topic an executor believes: those that the event store vouches for.

Used by the readers of the topic on executors; uses the same belief as every other reader. An
executor asks the event store only about messages without a seal that holds.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.domain.stream import EventStream
from headrace.domain.stream_body import aggregate_of
from headrace.events.belief import Belief
from headrace.events.seals import Seal
from headrace.serialization import Serializer
from headrace.spark.executor.gate import MissingVersions
from headrace.spark.executor.plan import FoldPlan, load_application
from headrace.spark.executor.positions import reading_store
from headrace.stores.base import StoredByCommand
from headrace.transports.base import QueueId

if TYPE_CHECKING:
    from headrace.stores.database.missing_streams import MissingStreams

__all__ = ["Doubts", "StoreGaps", "drop_strangers", "seal_of"]


class Doubts:
    """Judges what an executor reads.

    Args:
        plan: has the seal and the event store; without them all is believed.
        serializer: decodes events.
        keyed: whether the reader goes by the keys of messages.
        judges: False: all is believed, for a reader that takes nothing from messages but their keys.
    """

    def __init__(
        self, plan: FoldPlan, serializer: Serializer, *, keyed: bool = False, judges: bool = True
    ) -> None:
        self._belief: Belief | None = None
        self._cipher = serializer.cipher
        self._keyed = keyed
        url = plan.event_store
        if plan.seal is None or url is None or not judges:
            return

        async def find(commands: Collection[tuple[str, str]]) -> StoredByCommand:
            from headrace.stores.open import open_event_store

            store = await open_event_store(url, serializer)
            try:
                return await store.find_stored(commands)
            finally:
                await store.aclose()

        self._belief = Belief(seal=plan.seal, find=find, serializer=serializer)

    def find_keys(self, bodies: Iterable[bytes]) -> None:
        """Reads the keys of personal fields that messages need, all at once.

        Raises:
            SubjectKeysAway: they cannot be read just now.
        """
        if self._cipher is not None:
            self._cipher.find_all(bodies)

    def strangers(
        self,
        queue: QueueId,
        offsets: Sequence[int],
        keys: Sequence[str],
        bodies: Sequence[bytes],
    ) -> Collection[int]:
        """Returns the places of messages that are not believed, and logs them.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the event store is away.
        """
        belief = self._belief
        if belief is None:
            return ()
        known = keys if self._keyed else None
        if not belief.doubts(bodies, known):
            return ()
        found = asyncio.run(belief.strangers(bodies, known))
        for place, why in found.items():
            key = keys[place] or aggregate_of(bodies[place]) or ""
            belief.tell(queue, offsets[place], key, why)
        return found.keys()


def drop_strangers(plan: FoldPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leaves out records of streams that are not believed."""
    doubts = Doubts(
        plan, load_application(plan.app, plan.folder).serializer_at(plan.event_store), keyed=True
    )
    topic = plan.slices[0].queue.topic if plan.slices else ""
    for batch in batches:
        keys, queues, offsets, bodies = (
            batch[name].to_pylist() for name in ("key", "queue", "offset", "data")
        )
        kept = [True] * batch.num_rows
        for queue_id in set(queues):
            of_queue = [each == queue_id for each in queues]
            places = list(compress(range(batch.num_rows), of_queue))
            found = doubts.strangers(
                (topic, queue_id),
                *(list(compress(column, of_queue)) for column in (offsets, keys, bodies)),
            )
            for place in found:
                kept[places[place]] = False
        yield batch if all(kept) else batch.filter(pa.array(kept))


def seal_of(url: str | None, serializer: Serializer) -> Seal | None:
    """Returns the seal of the event store at a URL; None without one.

    Raises:
        SchemaOutOfDate: there is no such database, or its schema is not this version's.
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """
    # Executors load this module, and no database.
    from headrace.rebuild.shadow import open_truth

    async def read() -> Seal | None:
        async with open_truth(None if url == "memory://" else url, serializer) as truth:
            return truth.seal

    # A notebook has a loop of its own under way in its thread.
    with ThreadPoolExecutor(1) as alone:
        return alone.submit(lambda: asyncio.run(read())).result()


class StoreGaps:
    """Reads what the topic lacks from the event store, over one connection until it is closed.

    Args:
        url: of the event store; None: nothing is found.
        serializer: decodes what is stored.
    """

    def __init__(self, url: str | None, serializer: Serializer) -> None:
        self._url = url
        self._serializer = serializer
        self._runner = asyncio.Runner()
        self._streams: MissingStreams | None = None

    def __call__(self, wanted: Sequence[MissingVersions]) -> Sequence[EventStream]:
        """Returns the streams that the event store has of what is missing.

        Raises:
            DamagedStream, UnknownMessageType: one cannot be read.
            ProjectionError: the event store cannot be reached from here, or refuses.
        """
        # A store in the memory of another process cannot be read here.
        if self._url is None or self._url == "memory://":
            return ()
        if self._streams is None:
            # Workers that never read a database would load SQLAlchemy for nothing.
            from headrace.stores.database.missing_streams import MissingStreams

            self._streams = MissingStreams(self._url, self._serializer)
        with reading_store("the event store, which has what the topic lacks,"):
            return self._runner.run(self._streams.read(wanted))

    def close(self) -> None:
        """Closes the connection."""
        if self._streams is not None:
            self._runner.run(self._streams.aclose())
            self._streams = None
        self._runner.close()
