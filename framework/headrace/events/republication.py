"""
Completes the event topic: publishes the streams that the event store has and the topic lacks.

    the topic's streams ─▶ marks in a temporary file ─┐
    the store, page by page, in its order ────────────┴▶ not among the marks? ─▶ publisher

Streams of one aggregate go in order, and once; application messages are not sent again. You can repeat a
run that stopped half way: it finds what the last one has published.

Used by `headrace events republish` and by the lineage check. It knows no reader.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sqlalchemy import Column, LargeBinary, MetaData, Table, create_engine, func, select
from sqlalchemy.dialects.sqlite import insert

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace.domain.stream import EventStream
from headrace.domain.stream_body import origin_of
from headrace.errors import DamagedStream
from headrace.events.publisher import HEARTBEAT, Publisher, event_topic
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.transports.base import Incoming, Place, Transport

__all__ = ["Republication", "Republished"]

log = get_logger(__name__)

# Streams that are read, compared and published together: a few megabytes.
_PAGE: Final = 1_000
_MARK_BYTES: Final = 16
# Streams between two lines in the log.
_LOG_EVERY: Final = 100_000

_tables: Final = MetaData()
_held: Final = Table("held", _tables, Column("mark", LargeBinary, primary_key=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Republished:
    """The result of a run.

    Attributes:
        held: streams that the topic held before.
        stored: streams of the store that belong into the topic.
        published: streams that the topic lacked, and has now; after a dry run: those that it lacks.
        damaged: streams that the store cannot read; they were left out.
    """

    held: int
    stored: int
    published: int
    damaged: int


class Republication:
    """Publishes the streams that an application's event topic lacks.

    Args:
        name: the application's name.
        store: the event store.
        transport: where the topic is.
        serializer: encodes streams, in the same way as when they were first published.
        settings: pauses between attempts.
    """

    def __init__(
        self,
        *,
        name: str,
        store: EventStore,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
    ) -> None:
        self._name = name
        self._topic = event_topic(name)
        self._store = store
        self._transport = transport
        self._serializer = serializer
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)

    async def run(self, *, dry_run: bool = False) -> Republished:
        """Publishes the streams that were stored before the call and are not in the topic; durable on return.

        Services may run meanwhile: a stream that they publish may then come twice, and readers skip it.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the store failed.
            Exception: the topic could not be read.
        """
        last = await self._store.last_position()
        with tempfile.TemporaryDirectory(prefix="headrace-republish-") as folder:
            marks = await asyncio.to_thread(_Marks, Path(folder) / "marks.db")
            try:
                held = await self._note_held(marks)
                return await self._publish_lacking(marks, held, last, dry_run=dry_run)
            finally:
                await asyncio.to_thread(marks.close)

    async def _note_held(self, marks: "_Marks") -> int:
        lineage = await self._transport.topic_lineage(self._topic)
        for number, (first, end) in lineage.ranges.items():
            if first == end:
                continue
            async for messages in self._transport.read((self._topic, number), first, end):
                found = [_mark_of(each) for each in messages if each.tag != HEARTBEAT]
                await asyncio.to_thread(marks.add, found)
        return await asyncio.to_thread(marks.count)

    async def _publish_lacking(
        self, marks: "_Marks", held: int, last: int, *, dry_run: bool
    ) -> Republished:
        tasks = TaskSet("republication")
        publisher = Publisher(
            name=self._name,
            transport=self._transport,
            serializer=self._serializer,
            tasks=tasks,
            backoff=self._backoff,
        )
        stored = published = damaged = position = 0
        try:
            while position < last:
                page = await self._store.survey(after_position=position, limit=_PAGE)
                if not page:
                    break
                position = page[-1].position
                damaged += sum(isinstance(each, DamagedStream) for each in page)
                streams = [
                    each.stream
                    for each in page
                    if not isinstance(each, DamagedStream) and _is_placed(each.stream)
                ]
                wanted = [_mark(each.aggregate_id, each.command_id) for each in streams]
                known = await asyncio.to_thread(marks.known, wanted)
                lacking = [
                    each for each, mark in zip(streams, wanted, strict=True) if mark not in known
                ]
                if lacking and not dry_run:
                    await tasks.watch(self._publish(publisher, lacking))
                before, stored = stored, stored + len(streams)
                published += len(lacking)
                if before // _LOG_EVERY != stored // _LOG_EVERY:
                    log.info("the event topic is made whole", read=stored, published=published)
        finally:
            await tasks.aclose()
        return Republished(held=held, stored=stored, published=published, damaged=damaged)

    async def _publish(self, publisher: Publisher, streams: Sequence[EventStream]) -> None:
        waiting = len(streams)
        done = asyncio.Event()

        def published(_: Place | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                done.set()

        for stream in streams:
            body = self._serializer.encode_stream(stream)
            # Without its application messages: those were sent before.
            publisher.offer(replace(stream, messages=()), body, published)
        await done.wait()


class _Marks:
    """A set of marks in a file, because a topic may have more streams than fit in memory."""

    def __init__(self, file: Path) -> None:
        self._engine = create_engine(f"sqlite:///{file}")
        self._connection = self._engine.connect()
        _tables.create_all(self._connection)

    def add(self, marks: Sequence[bytes]) -> None:
        """Adds marks; one that is there already changes nothing."""
        if marks:
            rows = [{"mark": mark} for mark in marks]
            self._connection.execute(insert(_held).on_conflict_do_nothing(), rows)

    def known(self, marks: Sequence[bytes]) -> set[bytes]:
        """Returns which of these marks are in the set."""
        found = self._connection.scalars(select(_held.c.mark).where(_held.c.mark.in_(marks)))
        return set(found)

    def count(self) -> int:
        """Returns how many there are."""
        return self._connection.scalar(select(func.count()).select_from(_held)) or 0

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
        self._engine.dispose()


def _is_placed(stream: EventStream) -> bool:
    return bool(stream.events) or stream.rejection is not None


def _mark_of(message: Incoming) -> bytes:
    # From the body, because the seal proves it; a header may be forged.
    return _mark(*(origin_of(message.body) or ("", "")))


def _mark(aggregate_id: str, command_id: str) -> bytes:
    text = f"{len(aggregate_id)}:{aggregate_id}{command_id}"
    return hashlib.blake2b(text.encode(), digest_size=_MARK_BYTES).digest()
