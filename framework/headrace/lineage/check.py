"""
Watches that event store, event topic and readers of one application belong together.

    at start, and when a reader's connection comes back    compare
    another topic, or one that lost messages               the topic is made whole from the store, and
                                                           readers begin where it begins
    another event store, or an older one                   refused: nothing is read, the sentence
                                                           says what to do. Older is a store without
                                                           a stream that a reader has seen, or that
                                                           is among the last ones of the topic
    a reader meets messages that cannot be read            what the topic lacks is published from the
                                                           store; see `topic_damage`
    every `lineage_check_ms`                               note what readers have seen

Sits between: the application, which starts it before its readers, and the pure decision. Must never
know a projection's rows.
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
from headrace.lineage.marked_transport import MarkedTransport, TopicReplaced
from headrace.lineage.marks import Reader, begin_anew, read_kept, write_marks
from headrace.lineage.topic_damage import TopicDamage
from headrace.lineage.verdict import Kept, Mark, Verdict, judge, refusal
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.transports.base import Incoming, TopicLineage, Transport

__all__ = ["LineageCheck", "reader_names", "topic_reader"]

log = get_logger(__name__)

# Stands in the topic's own row while it is made whole.
_FILLING: Final = Mark(next_offset=0, message_id="filling")
_FILLED: Final = Mark(next_offset=0, message_id="")
# Messages at the end of each queue whose streams the store must have. What readers saw before those is
# in their marks, which are at most `lineage_check_ms` old.
_LAST_MESSAGES_MAX: Final = 1_000
# After the topic was filled because of damage: so many times as long as that took, it is not again.
# Damage without end takes a tenth of the time at most.
_REST: Final = 9


def reader_names(
    app_name: str, projections: Iterable[str], processors: Iterable[str], managers: Iterable[str]
) -> dict[str, str]:
    """Returns the name of each reader of an application's events, by its group."""
    return {
        **{f"{app_name}.projection.{name}": name for name in projections},
        **{f"{app_name}.handlers.{name}": HandlerProgress(name).parked.name for name in processors},
        **{f"{app_name}.process.{name}": f"process:{name}" for name in managers},
    }


def topic_reader(topic: str) -> str:
    """Returns the name under which a topic's own state is kept."""
    return f"topic:{topic}"


class LineageCheck:
    """Compares, heals, refuses.

    Args:
        app_name: names the event topic.
        readers: their names by group; see `reader_names`.
        read_models: the database that keeps what is known of them.
        store: the truth.
        transport: where the topic is.
        settings: how often it looks.
        fill: publishes what the topic lacks.
        clock: tells how long filling takes, and how long a claim to it lasts.

    Attributes:
        transport: for readers; all that they see is noted.
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
        # The topic as it was when it was compared last.
        self._lineage: TopicLineage | None = None
        self._generations: Mapping[str, int] = {}
        self._lacking = False
        self._wake = asyncio.Event()
        self._refused: str | None = None
        self._clock = clock or SystemClock()
        self._damage = TopicDamage(self._topic, read_models, self._clock, settings.fill_claim_ms)
        self._rest_until_ms = 0
        transport.mark_damage(self._topic)
        self.transport = MarkedTransport(transport, readers, self._enter, self._note_damage)

    @property
    def refused(self) -> str | None:
        """Why readers stand still; None: they do not."""
        return self._refused

    def damaged(self) -> Mapping[str, int]:
        """As `Transport.damaged`; of the event topic what is not made up for yet."""
        found = dict(self._plain.damaged())
        found.pop(self._topic, None)
        return found | ({self._topic: self._damage.unfilled} if self._damage.unfilled else {})

    async def paused(self) -> Collection[str]:
        """As `Transport.paused`, of this process's groups."""
        return await self._plain.paused()

    async def check(self) -> None:
        """Returns if all belong together; raises `LineageError`."""
        if self._refused is not None:
            raise LineageError(self._refused)

    async def begin(self) -> None:
        """Compares before anything is read or published; makes the topic whole where it lacks.

        Raises:
            LineageError: the event store is another one, or an older one; says what to do.
        """
        await self._compare()
        await self.check()
        if self._lacking:
            await self._make_whole()

    async def run(self) -> None:
        """Looks until cancelled; a look that fails is made up for by the next one."""
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
        """Notes what readers have seen, looks at the topic once, and makes it whole if it lacks."""
        if self._refused is not None:
            return
        if await self._is_other(await self._plain.topic_lineage(self._topic)):
            await self._compare()
        if self._refused is not None:
            return
        if self._lacking:
            await self._make_whole()
        await self._make_up()
        await finish(self._note())

    async def _enter(self) -> None:
        await self.check()
        if await self._is_other(await self._plain.topic_lineage(self._topic)):
            await self._compare()
            await self.check()
            raise TopicReplaced(f"{self._topic} is another topic now, or lost messages")

    async def _note_damage(self, markers: Sequence[Incoming]) -> None:
        assert self._lineage is not None, "compared before anything is read"
        if await self._damage.note(self._lineage.identity, markers):
            self._wake.set()

    async def _make_up(self) -> None:
        """Fills the topic once for all damage that is known and not filled, if no other process does."""
        assert self._lineage is not None, "compared before anything is noted"
        identity, began_ms = self._lineage.identity, self._clock.monotonic_ms()
        if began_ms < self._rest_until_ms or not (messages := await self._damage.take(identity)):
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
            self._rest_until_ms = ended_ms + _REST * (ended_ms - began_ms)
        await finish(self._damage.settle(identity))
        log.info("the event topic has again what it lacked", topic=self._topic, done=str(done))

    async def _is_other(self, now: TopicLineage) -> bool:
        known = self._lineage
        if known is None or now.identity != known.identity:
            return True
        ends = {number: end for number, (_, end) in known.ranges.items()}
        for seen in self.transport.seen.values():
            for number, message in seen.last.items():
                ends[number] = max(ends.get(number, 0), message.offset + 1)
        lost = any(now.ranges.get(number, (0, 0))[1] < end for number, end in ends.items())
        if not lost:
            self._lineage = now
        return lost

    async def _compare(self) -> None:
        async with self._turn:
            topic = await self._plain.topic_lineage(self._topic)
            if self._lineage is not None and not await self._is_other(topic):
                return  # whoever had the turn before has compared
            await self._compare_with(topic)

    async def _compare_with(self, topic: TopicLineage) -> None:
        store = (await self._store.identity()).id
        own = topic_reader(self._topic)
        kept, self._generations = await self._read_models.transact(
            partial(read_kept, names=[*self._names, own], topic=self._topic)
        )
        if self._lineage is not None:
            kept = self._with_seen(kept)
        missing = await self._missing(kept.values())
        found = await self._found(topic, kept.values())
        verdicts = {
            reader: judge(each, topic=topic, found=found, store=store, missing=missing)
            for reader, each in kept.items()
        }
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
        anew = [reader for reader, each in verdicts.items() if each is Verdict.FROM_START]
        if _is_lacking(topic_kept, topic, await self._store.last_position(), anew=bool(anew)):
            self._lacking = True
            self._wake.set()
        state = _FILLING if self._lacking else _FILLED
        fresh: dict[Reader, dict[int, Mark]] = {
            reader: {}
            for reader, each in kept.items()
            if each.topic != topic.identity or each.store != store or reader in anew
        }
        if self._lacking or (own, 0) in fresh:
            fresh[own, 0] = {0: state}
        if fresh:
            await self._read_models.transact(
                partial(_settle, anew=anew, fresh=fresh, topic=topic.identity, store=store)
            )
        if anew:
            log.warning(
                "the event topic is another one, or lost messages; readers begin where it begins",
                topic=self._topic,
                readers=sorted(name for name, _ in anew if name != own),
            )
        if self._lineage is not None:
            self.transport.begin_life()
        self._store_id, self._lineage = store, topic

    def _refuse(self, verdict: Verdict, readers: Sequence[str], store: str) -> None:
        self._refused = refusal(verdict, readers, store=store, topic=self._topic)
        log.error("readers stand still", reason=self._refused)

    async def _has_more(self, topic: TopicLineage) -> bool:
        """Whether the topic ends with streams that the store has lost; these were stored before.

        Marks are written behind: after a kill they do not tell of what readers saw last. The transport
        brings nothing from the topic that the store's own application has not published.
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
        """Adds what readers of this process have seen and nobody has noted so far."""
        assert self._lineage is not None, "asked only after the first comparison"
        return {
            (name, generation): Kept(
                topic=self._lineage.identity,
                store=each.store,
                marks={**each.marks, **self.transport.seen[name].marks()},
                offsets=each.offsets,
            )
            if name in self.transport.seen
            else each
            for (name, generation), each in kept.items()
        }

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
            return True  # it is there, whatever it says

    async def _found(self, topic: TopicLineage, kept: Iterable[Kept]) -> dict[tuple[int, int], str]:
        """Returns the command ids of the messages that readers say they have seen last."""
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

    async def _make_whole(self) -> None:
        log.info("the event topic is made whole from the event store", topic=self._topic)
        done = await self._fill()
        own = {(topic_reader(self._topic), 0): {0: _FILLED}}
        await self._write(own)
        self._lacking = False
        log.info("the event topic is whole", topic=self._topic, done=str(done))

    async def _note(self) -> None:
        """Writes marks of what the store has: of a message that anybody could send it says nothing."""
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
            for number, mark in seen.marks().items():
                stream = mark.stream
                if stream is None or not await self._is_stored(stream):
                    stream = before[number].stream if number in before else None
                marks[number] = replace(mark, stream=stream)
            await self._write({reader: marks})

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
    """Returns the streams of events in messages, from what is under the seal."""
    for message in messages:
        if message.tag == HEARTBEAT or message.headers.get("kind") == "rejection":
            continue
        stream = origin_of(message.body)
        if stream is not None:
            yield stream


def _is_lacking(kept: Kept, topic: TopicLineage, last_position: int, *, anew: bool) -> bool:
    """Whether the topic may lack what the store has."""
    if not last_position:
        return False
    if anew or _FILLING in kept.marks.values():
        return True
    return topic.is_empty if kept.topic is None else kept.topic != topic.identity


def _settle(
    connection: Any,
    *,
    anew: list[Reader],
    fresh: Mapping[Reader, Mapping[int, Mark]],
    topic: str,
    store: str,
) -> None:
    begin_anew(connection, anew)
    write_marks(connection, fresh, topic=topic, store=store)
