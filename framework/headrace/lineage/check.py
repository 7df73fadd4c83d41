"""
Checks that event store, event topic and readers of one application belong together.

    at start, and when a reader connects again    compare them
    another topic, or one that lost messages      publish from the store what the topic lacks; readers
                                                  begin at the topic's start
    brokers lost messages, also while no service  publish from the store what the topic lacks; readers
    ran: marks have the epochs of the brokers     go back to where messages have changed
    another event store, or an older one          refuse: readers stop, and the error says what to do.
                                                  A store is older if it lacks a stream that a reader
                                                  has seen, or that is among the topic's last ones
    a reader meets messages that it cannot read   publish from the store what the topic lacks; see
                                                  `topic_damage`
    every `lineage_check_ms`                      store what readers have seen
    queues are away, with their group of brokers  check the others; what is away is as it was last known,
                                                  and checked when it is back. To compare them needs all

Used by `App`, which starts it before the readers; `verdict` decides. It knows no rows of projections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import finish
from headrace.domain.stream_body import origin_of
from headrace.errors import HeadraceError, LineageError
from headrace.events.publisher import HEARTBEAT, event_topic
from headrace.handlers.progress import HandlerProgress
from headrace.lineage.marked_transport import MarkedTransport, Seen, TopicReplaced
from headrace.lineage.marks import Reader, read_kept, settle_readers, write_marks
from headrace.lineage.topic_damage import TopicDamage
from headrace.lineage.verdict import (
    Kept,
    Mark,
    Verdict,
    fresh_marks,
    judge,
    refusal,
    state_marks,
    why_trimmed,
)
from headrace.projections.definition.projection import projection_group
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.transports.base import Incoming, PartlyThere, TopicLineage, Transport

__all__ = ["LineageCheck", "reader_names", "topic_reader"]

log = get_logger(__name__)

# In the topic's own row: while the topic is filled from the store, and after that.
_FILLING: Final = Mark(next_offset=0, message_id="filling")
_FILLED: Final = Mark(next_offset=0, message_id="")
# Messages at the end of each queue whose streams the store must have. Older ones are covered by the marks
# of readers, which are at most `lineage_check_ms` old.
_LAST_MESSAGES_MAX: Final = 1_000
# After a fill because of damage, wait so many times as long as the fill took. Then repeated damage costs
# a tenth of the time at most.
_PAUSE_FACTOR: Final = 9


def reader_names(
    app_name: str, versions: Mapping[str, int], processors: Iterable[str], managers: Iterable[str]
) -> dict[str, str]:
    """Returns the names of the readers of an application's events, by consumer group.

    Args:
        app_name: the application's name.
        versions: of the definitions of its projections, by name.
        processors: the names of its event handlers.
        managers: the names of its process managers.
    """
    return {
        **{projection_group(app_name, name, version): name for name, version in versions.items()},
        **{f"{app_name}.handlers.{name}": HandlerProgress(name).parked.name for name in processors},
        **{f"{app_name}.process.{name}": f"process:{name}" for name in managers},
    }


def topic_reader(topic: str) -> str:
    """Returns the name of a topic's own state in the tables of readers."""
    return f"topic:{topic}"


class LineageCheck:
    """Compares store, topic and readers; fills the topic, or refuses to let readers run.

    Args:
        app_name: the application's name; part of the event topic's name.
        readers: names of readers by consumer group; see `reader_names`.
        read_models: the database of the readers' marks.
        store: the event store.
        transport: where the topic is.
        settings: how often to check.
        fill: publishes the streams that the topic lacks.
        clock: measures how long a fill takes, and when a claim to it ends.

    Attributes:
        transport: the transport for readers; it notes what they have seen.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        app_name: str,
        readers: Mapping[str, str],
        read_models: ReadModels,
        store: EventStore,
        transport: Transport,
        settings: Settings,
        fill: Callable[[], Awaitable[Any]],
        clock: Clock | None = None,
    ) -> None:
        self._topic = event_topic(app_name)
        self._names = sorted(readers.values())
        self._read_models = read_models
        self._store = store
        self._plain = transport
        self._settings = settings
        self._fill = fill
        self._turn = asyncio.Lock()
        self._store_id = ""
        # The topic at the last comparison.
        self._lineage: TopicLineage | None = None
        self._generations: Mapping[str, int] = {}
        self._lacking = False
        self._wake = asyncio.Event()
        self._refused: str | None = None
        self._clock = clock or SystemClock()
        self._damage = TopicDamage(self._topic, read_models, self._clock, settings.fill_claim_ms)
        self._pause_until_ms = 0
        transport.mark_damage(self._topic)
        self.transport = MarkedTransport(
            transport, readers, self._enter, self._note_damage, self._require
        )

    @property
    def refused(self) -> str | None:
        """Why readers may not run; None: they may."""
        return self._refused

    def damaged(self) -> Mapping[str, int]:
        """As `Transport.damaged`; for the event topic only damage that is not filled yet."""
        found = dict(self._plain.damaged())
        found.pop(self._topic, None)
        return found | ({self._topic: self._damage.unfilled} if self._damage.unfilled else {})

    async def paused(self) -> Collection[str]:
        """As `Transport.paused`, for this process's groups."""
        return await self._plain.paused()

    async def check(self) -> None:
        """Raises `LineageError` if readers may not run."""
        if self._refused is not None:
            raise LineageError(self._refused)

    async def begin(self) -> None:
        """Compares before anything is read or published; fills the topic if it lacks streams.

        Raises:
            LineageError: the event store is another one, or an older one; the error says what to do.
        """
        await self._compare()
        await self.check()
        if self._lacking:
            await self._fill_topic()

    async def run(self) -> None:
        """Checks at intervals until cancelled; after an error the next check comes as usual."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._settings.lineage_check_ms / 1_000):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
                try:
                    await self.look()
                except Exception as error:  # noqa: BLE001 - database and queue fail as they like; logged
                    log.warning("lineage could not be looked at", error=repr(error))
                    if self._lacking:
                        self._wake.set()
                    await asyncio.sleep(self._settings.retry_ms_min / 1_000)
        finally:
            await finish(self._note_last())

    async def look(self) -> None:
        """Checks the topic once, fills it if it lacks streams, and stores what readers have seen."""
        if self._refused is not None:
            return
        if await self._is_replaced(await self._there()):
            await self._compare()
        if self._refused is not None:
            return
        if self._lacking:
            await self._fill_topic()
        await self._fill_damage()
        await finish(self._note())

    async def _enter(self) -> None:
        await self.check()
        if await self._is_replaced(await self._there()):
            await self._compare()
            await self.check()
            raise TopicReplaced(f"{self._topic} is another topic now, or lost messages")

    async def _there(self) -> TopicLineage:
        """Returns the topic as far as it is there now; before the first comparison all of it."""
        plain = self._plain
        if self._lineage is not None and isinstance(plain, PartlyThere):
            return await plain.lineage_there(self._topic)
        return await plain.topic_lineage(self._topic)

    async def _require(
        self, reader: str, begins: Mapping[int, int], queues: Collection[int] | None
    ) -> None:
        assert self._lineage is not None, "compared before anything is read"
        numbers = self._lineage.ranges if queues is None else queues
        if away := self._lineage.away.intersection(numbers):
            # It may have lost messages; a reader asks again.
            raise HeadraceError(
                f"queue {min(away)} of {self._topic} is away, so it is not read yet"
            )
        asked = {number: begins.get(number, 0) for number in numbers}
        sentence = why_trimmed(reader, asked, self._lineage)
        if sentence is not None:
            raise LineageError(f"{self._topic}: {sentence}")

    async def _note_damage(self, markers: Sequence[Incoming]) -> None:
        assert self._lineage is not None, "compared before anything is read"
        if await self._damage.note(self._lineage.identity, markers):
            self._wake.set()

    async def _fill_damage(self) -> None:
        """Fills the topic once for all known damage, unless another process does."""
        assert self._lineage is not None, "compared before anything is noted"
        identity, began_ms = self._lineage.identity, self._clock.monotonic_ms()
        if began_ms < self._pause_until_ms or not (messages := await self._damage.take(identity)):
            return
        log.warning(
            "messages of the event topic cannot be read; what it lacks is published from the event"
            " store",
            topic=self._topic,
            messages=messages,
        )
        try:
            async with self._damage.claimed(identity):
                done = await self._fill()
        finally:
            ended_ms = self._clock.monotonic_ms()
            self._pause_until_ms = ended_ms + _PAUSE_FACTOR * (ended_ms - began_ms)
        await finish(self._damage.settle(identity))
        log.info("the event topic has again what it lacked", topic=self._topic, done=str(done))

    async def _is_replaced(self, now: TopicLineage) -> bool:
        known = self._lineage
        if known is None or now.identity != known.identity:
            return True
        ends = {number: end for number, (_, end) in known.ranges.items()}
        for seen in self.transport.seen.values():
            for number, message in seen.last.items():
                ends[number] = max(ends.get(number, 0), message.offset + 1)
        # Where messages were lost, others may have their offsets by now.
        lost = now.has_lost_since(known) or any(
            now.ranges.get(number, (0, 0))[1] < end
            for number, end in ends.items()
            if number not in now.away
        )
        if not lost:
            self._lineage = now.carrying(known)
            if now.away != known.away:
                what = "other queues of the event topic are away now; readers read those that are there"
                log.warning(what, topic=self._topic, away=sorted(now.away))
        return lost

    async def _compare(self) -> None:
        async with self._turn:
            topic = await self._plain.topic_lineage(self._topic)
            if self._lineage is not None and not await self._is_replaced(topic):
                return  # another task has compared while this one waited
            await self._compare_with(topic)

    async def _compare_with(self, topic: TopicLineage) -> None:
        store = (await self._store.identity()).id
        own = topic_reader(self._topic)
        kept, self._generations = await self._read_models.transact(
            partial(read_kept, names=[*self._names, own], topic=self._topic)
        )
        if self._lineage is not None:
            kept = self._with_seen(kept)
        changed = await self._changed(kept)
        missing = await self._missing(kept.values())
        found = await self._found(topic, kept.values())
        decide = partial(judge, topic=topic, found=found, store=store, missing=missing)
        verdicts = {one: decide(each, changed=changed[one]) for one, each in kept.items()}
        for verdict in (Verdict.OTHER_STORE, Verdict.OLDER_STORE):
            refused = [name for (name, _), each in verdicts.items() if each is verdict]
            if refused:
                readers = [name for name in refused if name != own]
                self._refuse(verdict, readers, store)
                return
        if await self._has_more(topic):
            self._refuse(Verdict.OLDER_STORE, [], store)
            return
        topic_kept = kept[own, 0]
        reset = [reader for reader, each in verdicts.items() if each is Verdict.FROM_START]
        back = {one: changed[one] for one, each in verdicts.items() if each is Verdict.BACK}
        # What was lost may be behind the marks of all readers.
        lost = self._lineage is not None and topic.has_lost_since(self._lineage)
        lost = lost or bool(changed[own, 0])
        last_position = await self._store.last_position()
        if _is_lacking(topic_kept, topic, last_position, reset=bool(reset) or lost):
            self._lacking = True
            self._wake.set()
        state = _FILLING if self._lacking else _FILLED
        fresh = fresh_marks(kept, topic, store=store, changed=changed, reset=reset)
        if self._lacking or (own, 0) in fresh:
            fresh[own, 0] = state_marks(state, topic)
        if fresh:
            work = partial(settle_readers, reset=reset, back=back, fresh=fresh, name=self._topic)
            await self._read_models.transact(partial(work, topic=topic.identity, store=store))
        if back:
            log.warning(
                "brokers of the event topic lost messages; readers go back to where they have changed",
                topic=self._topic,
                readers=sorted(name for name, _ in back if name != own),
            )
        if reset:
            log.warning(
                "the event topic is another one, or lost messages; readers begin where it begins",
                topic=self._topic,
                readers=sorted(name for name, _ in reset if name != own),
            )
        if self._lineage is not None:
            self.transport.begin_epoch()
        self._store_id, self._lineage = store, topic

    def _refuse(self, verdict: Verdict, readers: Sequence[str], store: str) -> None:
        self._refused = refusal(verdict, readers, store=store, topic=self._topic)
        log.error("readers stand still", reason=self._refused)

    async def _has_more(self, topic: TopicLineage) -> bool:
        """Whether the topic ends with streams that the store has lost.

        Marks are stored some time after readers see a message, and a killed process loses the last ones.
        So this reads the end of the topic. The transport delivers only messages that the store's own
        application has published, so their streams were once stored.
        """
        streams: set[tuple[str, str]] = set()
        for number, (first, end) in topic.ranges.items():
            begin = max(first, end - _LAST_MESSAGES_MAX)
            if begin == end:
                continue
            try:
                async for messages in self._plain.read((self._topic, number), begin, end):
                    streams.update(_published(messages))
            except HeadraceError:
                raise
            except Exception as error:  # noqa: BLE001 - damage, as adapters say it; readers meet it and fill it
                log.warning(
                    "the end of the event topic cannot be read",
                    queue=f"{self._topic}/{number}",
                    error=repr(error),
                )
        return bool(streams - (await self._store.find_stored(streams)).keys())

    def _with_seen(self, kept: Mapping[Reader, Kept]) -> dict[Reader, Kept]:
        """Adds what readers of this process have seen since the last marks were stored."""
        assert self._lineage is not None, "asked only after the first comparison"
        return {
            (name, generation): Kept(
                topic=self._lineage.identity,
                store=each.store,
                marks={**each.marks, **self._marks_now(self.transport.seen[name])},
                offsets=each.offsets,
            )
            if name in self.transport.seen
            else each
            for (name, generation), each in kept.items()
        }

    async def _changed(self, kept: Mapping[Reader, Kept]) -> dict[Reader, Mapping[int, int]]:
        """Returns for each reader, by queue, where messages have changed since the epochs of its marks."""
        found: dict[tuple[tuple[int, int], ...], Mapping[int, int]] = {(): {}}
        for each in kept.values():
            known = tuple(sorted(each.epochs.items()))
            if known not in found:
                now = await self._plain.topic_lineage(self._topic, each.epochs)
                found[known] = now.changed
        return {reader: found[tuple(sorted(each.epochs.items()))] for reader, each in kept.items()}

    async def _missing(self, kept: Iterable[Kept]) -> set[tuple[str, str]]:
        """Returns the streams that readers have seen and the store does not have."""
        streams = {
            mark.stream for each in kept for mark in each.marks.values() if mark.stream is not None
        }
        return {stream for stream in streams if not await self._is_stored(stream)}

    async def _is_stored(self, stream: tuple[str, str]) -> bool:
        try:
            return await self._store.find_command(*stream) is not None
        except HeadraceError:
            return True  # the stream is there, even if it cannot be decoded

    async def _found(self, topic: TopicLineage, kept: Iterable[Kept]) -> dict[tuple[int, int], str]:
        """Returns the command ids of the messages in the topic at the places of the readers' marks."""
        places = {
            (number, mark.next_offset) for each in kept for number, mark in each.marks.items()
        }
        found = {}
        for number, after in sorted(places):
            first, end = topic.ranges.get(number, (0, 0))
            if not first < after <= end:
                continue
            queue = (self._topic, number)
            async for messages in self._plain.read(queue, after - 1, after):
                for message in messages:
                    found[number, after] = message.headers.get("command", "")
        return found

    async def _fill_topic(self) -> None:
        log.info("the event topic is made whole from the event store", topic=self._topic)
        done = await self._fill()
        assert self._lineage is not None, "compared before anything is filled"
        marks = state_marks(_FILLED, self._lineage)
        await self._write({(topic_reader(self._topic), 0): marks})
        self._lacking = False
        log.info("the event topic is whole", topic=self._topic, done=str(done))

    async def _note(self) -> None:
        """Stores the readers' marks; a stream is in a mark only if the store has it."""
        for name, seen in self.transport.seen.items():
            if not seen.changed:
                continue
            seen.changed = False
            kept, generations = await self._read_models.transact(
                partial(read_kept, names=[name], topic=self._topic)
            )
            reader = (name, generations.get(name, 0))
            before = kept[reader].marks
            marks = {}
            for number, mark in self._marks_now(seen).items():
                stream = mark.stream
                if stream is None or not await self._is_stored(stream):
                    stream = before[number].stream if number in before else None
                marks[number] = replace(mark, stream=stream)
            await self._write({reader: marks})

    def _marks_now(self, seen: Seen) -> dict[int, Mark]:
        """Returns what a reader has seen, with the epochs in which nothing of it was lost."""
        epochs = {} if self._lineage is None else self._lineage.epochs
        return {
            number: replace(mark, epoch=epochs.get(number, 0))
            for number, mark in seen.marks().items()
        }

    async def _note_last(self) -> None:
        try:
            if self._refused is None:
                await self._note()
        except Exception as error:  # noqa: BLE001 - the next start has the marks from before
            log.warning("what was seen last was not noted", error=repr(error))

    async def _write(self, readers: Mapping[Reader, Mapping[int, Mark]]) -> None:
        assert self._lineage is not None, "compared before anything is noted"
        await self._read_models.transact(
            partial(
                write_marks, readers=readers, topic=self._lineage.identity, store=self._store_id
            )
        )


def _published(messages: Iterable[Incoming]) -> Iterator[tuple[str, str]]:
    """Returns the streams of the messages that hold events, from their sealed bodies."""
    for message in messages:
        if message.tag == HEARTBEAT or message.headers.get("kind") == "rejection":
            continue
        stream = origin_of(message.body)
        if stream is not None:
            yield stream


def _is_lacking(kept: Kept, topic: TopicLineage, last_position: int, *, reset: bool) -> bool:
    """Whether the topic may lack streams that the store has."""
    if not last_position:
        return False
    if reset or any(mark.message_id == _FILLING.message_id for mark in kept.marks.values()):
        return True
    return topic.is_empty if kept.topic is None else kept.topic != topic.identity
