"""
A member of a consumer group at Kafka: a thread that polls, and what it hands to the event loop.

    thread   poll ─▶ a batch ──────────────▶ loop   poll() ─▶ what is still this member's, and not sought
             assigned ─▶ where to begin? ──▶        the caller's offsets, or the group's
             each second ◀─ doors ◀────────         ack()
             revoked, closed: commit, then let go

Who keeps offsets itself is asked for them while the assignment waits; Kafka's are not used then.
Used by the transport; uses `doors`. It must not know what messages mean.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.transports.base import Incoming, OffsetLoader, QueueId
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import REQUEST_S, make_client, reading_config
from headrace.transports.kafka.doors import Door, Doors
from headrace.transports.kafka.failures import failure
from headrace.transports.kafka.producer import TAG_HEADER

__all__ = ["KafkaSubscription", "group_config", "incoming"]

_log = get_logger(__name__)

# Messages that one poll returns at most, and that wait for the next ones.
_POLL_MESSAGES_MAX: Final = 1_000
_WAITING_MESSAGES_MAX: Final = 2_000
# How often the thread looks for wishes of the loop, which it is woken for in no other way.
_LOOK_S: Final = 0.05
_COMMIT_S: Final = 1.0
# A member that is away for so long loses its queues: one with a name may come back to them, as on the
# built-in queue; of one without, nothing but a crash takes so long.
_NAMED_SESSION_MS: Final = 30_000
_SESSION_MS: Final = 10_000
# How often a member asks whether queues have to move.
_HEARTBEAT_MS: Final = 500
_REFUSALS: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


class _Read(NamedTuple):
    """A message as the thread has read it."""

    door: Door
    epoch: int
    message: Incoming


def group_config(address: KafkaAddress, name: str, group: str, member: str) -> dict[str, Any]:
    """Returns the configuration of a member.

    Args:
        address: of the cluster.
        name: of the client.
        group: which it joins.
        member: under which it gets its queues back when it returns within 30 s; empty: it gets others.
    """
    config: dict[str, Any] = {"group.protocol": address.group_protocol}
    if address.group_protocol == "classic":
        config["partition.assignment.strategy"] = "cooperative-sticky"
        config["session.timeout.ms"] = _NAMED_SESSION_MS if member else _SESSION_MS
        # A member hears of another one this soon, twice for a queue that moves.
        config["heartbeat.interval.ms"] = _HEARTBEAT_MS
    config = {**config, **reading_config(address, name), "group.id": group}
    if member:
        config["group.instance.id"] = member
    return config


class KafkaSubscription:
    """One member of a group; made and started by the transport, used in one event loop.

    Args:
        config: of the consumer, as `group_config` makes it.
        topics: which it reads.
        offsets: where to begin; None: the group's offsets are kept by Kafka.
    """

    def __init__(
        self, config: Mapping[str, Any], topics: Sequence[str], offsets: OffsetLoader | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._load = offsets
        self._doors = Doors(acknowledged=offsets is None)
        self._read: deque[_Read] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self._failed: BaseException | None = None
        # Of the loader; raised by one poll, and then the loader is asked again.
        self._not_loaded: BaseException | None = None
        self._wanted = asyncio.Event()
        # Wishes of the loop, and how many read messages wait there: for the thread.
        self._seeks: deque[tuple[Door, int, int]] = deque()
        self._ending = threading.Event()
        self._paused = False
        self._epochs: dict[QueueId, tuple[Door, int]] = {}
        self._consumer = make_client(Consumer, config)
        self._topics = list(topics)
        group = config["group.id"]
        self._thread = threading.Thread(target=self._run, name=f"kafka {group}", daemon=True)
        self._thread.start()

    # In the event loop.

    async def poll(self) -> list[Incoming]:
        """Waits for messages and returns some, in offset order within each queue.

        Raises:
            HeadraceError: the subscription is closed, or the cluster refuses the member.
        """
        while True:
            if self._closed:
                raise HeadraceError("the subscription is closed")
            if self._failed is not None:
                raise self._failed
            self._wanted.set()
            if self._not_loaded is not None:
                error, self._not_loaded = self._not_loaded, None
                raise error
            self._news.clear()
            if found := self._take():
                return found
            await self._news.wait()

    def ack(self, message: Incoming) -> None:
        """Says that a message is done; of a queue that is another member's by now it says nothing."""
        self._doors.acknowledge(message.queue, message.offset)

    def seek(self, queue: QueueId, offset: int) -> None:
        """Makes the next poll continue at an offset of an assigned queue.

        Raises:
            ValueError: the offset is below 0.
        """
        if offset < 0:
            raise ValueError(f"an offset is 0 or more, not {offset}")
        found = self._doors.seek(queue)
        if found is not None:
            self._seeks.append((*found, offset))

    async def aclose(self) -> None:
        """Commits what is done, and leaves the group."""
        self._closed = True
        self._news.set()
        self._wanted.set()
        self._ending.set()
        await asyncio.to_thread(self._thread.join)

    def _take(self) -> list[Incoming]:
        found: list[Incoming] = []
        while self._read and len(found) < _POLL_MESSAGES_MAX:
            door, epoch, message = self._read.popleft()
            if self._doors.deliver(door, epoch, message.offset):
                found.append(message)
        return found

    async def _offsets(self, queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
        """Asks the caller where to begin, until it says."""
        assert self._load is not None, "asked of callers that keep offsets"
        while not self._closed:
            try:
                return await self._load(queues)
            except Exception as error:  # noqa: BLE001 - raised by the next poll
                self._wanted.clear()
                self._not_loaded = error
                self._news.set()
                # It goes on once a poll has raised it, and another one asks.
                while self._not_loaded is not None and not self._closed:
                    await self._wanted.wait()
                    self._wanted.clear()
                    await asyncio.sleep(0)
        return {}

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            # The loop is closed, and nothing waits any more.
            self._ending.set()

    # In the thread.

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            self._follow()
        except Exception as error:  # noqa: BLE001 - raised by polls
            self._fail(error)
        finally:
            try:
                self._commit(self._doors.moved(), wait=True)
            finally:
                self._consumer.close()

    def _follow(self) -> None:
        due = monotonic() + _COMMIT_S
        while not self._ending.is_set():
            while self._seeks:
                self._move(*self._seeks.popleft())
            self._hold()
            first = self._consumer.poll(_LOOK_S)
            if first is not None:
                rest = [] if self._paused else self._consumer.consume(_POLL_MESSAGES_MAX - 1, 0)
                self._hand([first, *rest])
            if monotonic() >= due:
                due = monotonic() + _COMMIT_S
                self._commit(self._doors.moved(), wait=False)

    def _hand(self, messages: Sequence[Any]) -> None:
        """Hands messages to the loop; those of a queue that was lost or sought meanwhile are dropped there."""
        for each in messages:
            if error := each.error():
                if error.code() == KafkaError._FATAL:
                    raise HeadraceError(
                        f"Kafka, group of {', '.join(self._topics)}: {error.str()}; if another process"
                        " runs under the same name, give each process of the application its own"
                    )
                if error.code() in _REFUSALS:
                    raise failure(error, f"group of {', '.join(self._topics)}")
                _log.debug("Kafka", code=error.name(), error=error.str())
                continue
            placed = self._epochs.get((each.topic(), each.partition()))
            if placed is not None:
                self._read.append(_Read(*placed, incoming(each)))
        self._wake()

    def _hold(self) -> None:
        """Stops fetching while too much waits for the loop: the thread has to go on polling."""
        much = len(self._read) >= _WAITING_MESSAGES_MAX
        if much == self._paused:
            return
        held = self._consumer.assignment()
        (self._consumer.pause if much else self._consumer.resume)(held)
        self._paused = much

    def _move(self, door: Door, epoch: int, offset: int) -> None:
        if self._doors.get(door.queue) is not door:
            return
        place = self._clamped(door.queue, offset)
        self._epochs[door.queue] = (door, epoch)
        self._consumer.seek(place)

    def _assigned(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        queues = [(part.topic, part.partition) for part in parts]
        places = list(parts)
        if self._load is not None:
            asked = asyncio.run_coroutine_threadsafe(self._offsets(queues), self._loop)
            offsets = asked.result()
            places = [self._clamped(queue, offsets.get(queue, 0)) for queue in queues]
        for queue in queues:
            self._epochs[queue] = (self._doors.open(queue), 0)
        consumer.incremental_assign(places)
        if self._paused:
            consumer.pause(places)

    def _revoked(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        queues = [(part.topic, part.partition) for part in parts]
        self._commit(self._doors.moved(queues), wait=True)
        self._let_go(consumer, parts, queues)

    def _lost(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._let_go(consumer, parts, [(part.topic, part.partition) for part in parts])

    def _let_go(
        self, consumer: Consumer, parts: Sequence[TopicPartition], queues: Sequence[QueueId]
    ) -> None:
        for queue in queues:
            self._doors.close(queue)
            self._epochs.pop(queue, None)
        consumer.incremental_unassign(list(parts))

    def _clamped(self, queue: QueueId, offset: int) -> TopicPartition:
        """Returns an offset as a place, or the nearest one that the queue has."""
        part = TopicPartition(*queue)
        try:
            marks = self._consumer.get_watermark_offsets(part, timeout=REQUEST_S)
        except KafkaException as error:
            _log.warning("the ends of a queue are unknown", queue=queue, error=str(error))
            marks = None
        first, end = marks or (0, offset)
        part.offset = min(max(offset, first), end)
        return part

    def _commit(self, offsets: Mapping[QueueId, int], *, wait: bool) -> None:
        """Tells Kafka how far the group is; where that fails, messages come again."""
        if not offsets:
            return
        places = [TopicPartition(*queue, offset) for queue, offset in offsets.items()]
        try:
            if wait:
                self._consumer.commit(offsets=places, asynchronous=False)
            else:
                self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            _log.warning("offsets are not committed", error=str(error))

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, KafkaException):
            error = failure(error, f"group of {', '.join(self._topics)}")
        self._failed = error
        self._wake()


def incoming(record: Any) -> Incoming:
    """Returns a message of the client's as the port's."""
    # What is no UTF-8 is another program's; who handles it sees that it is no command or event.
    headers = {
        name: (value or b"").decode(errors="replace") for name, value in record.headers() or ()
    }
    tag = headers.pop(TAG_HEADER, "")
    key, body = record.key(), record.value()
    return Incoming(
        (record.topic(), record.partition()),
        record.offset(),
        "" if key is None else key.decode(errors="replace"),
        tag,
        headers,
        b"" if body is None else body,
        max(0, record.timestamp()[1]),
    )
