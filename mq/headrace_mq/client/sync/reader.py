"""
Reads ranges of queues over a plain blocking socket, without an event loop.

For scripts, and for workers that run no asyncio such as Spark executors. While one answer is being
worked on, the broker prepares the next.

Used by such programs, and by `spark` and the framework's rebuilds. Of consumer groups it knows only
the committed offsets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol

from headrace_mq._net.address import BrokerAddress, ReadFrom
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.sync.connection import BlockingConnection
from headrace_mq.client.sync.group_readers import GroupReaders, require_all
from headrace_mq.client.sync.leader import LEADER_IS_GONE, Leader, Search
from headrace_mq.client.sync.replicas import Replicas
from headrace_mq.client_settings import FETCH_BYTES_MAX
from headrace_mq.errors import (
    DataCorrupt,
    MessageQueueError,
    OffsetOutOfRange,
    QueueFrozen,
    QueueNotFound,
    ResponseCode,
    TopicNotFound,
    UndecodableBatch,
    error_for,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import OffsetsAt
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    check_body,
    check_head,
    decode_placed,
    read_header,
    split_batches,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Fetch,
    FetchFrom,
    GetOffsets,
    KnownEpoch,
    OffsetsAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.keys import topics_in_parts
from headrace_mq.protocol.sparse import dense_runs, removed_before

__all__ = ["BlockingReader", "Part", "TopicReader"]

# Large enough that requests cost nothing compared with their content, small enough to hold twice.
READ_BYTES = 2 << 20
# How long a replica may wait for what it does not have yet; then the leader is asked. It learns what is committed with the
# next bytes.
_BEHIND_MS_MAX = 200
# What a replica says where the leader knows more.
_THE_LEADER_KNOWS = (OffsetOutOfRange, QueueNotFound, QueueFrozen, TopicNotFound)

_log = get_logger(__name__)

_NOTHING = Columns([], [], [], [], [])


# A batch, and which of its messages are meant: from one place to before another.
Part = tuple[BatchHeader, Columns, int, int]


class TopicReader(Protocol):
    """Reads topics by offsets; `BlockingReader` does, and an adapter for another queue may."""

    def ranges(
        self, topics: Sequence[str], known: Mapping[QueueRef, int] | None = None
    ) -> list[QueueRange]:
        """Returns what every queue of the topics holds; for queues with a known epoch also what has changed since.

        Raises:
            TopicNotFound: one of them does not exist.
            ConnectionLost: the queue is away.
        """
        ...

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """Returns the first offset of every queue that was stored at a time (ms, UTC) or later.

        Raises:
            TopicNotFound, ConnectionLost: as `ranges`.
        """
        ...

    def is_settled(self, topic: str) -> bool:
        """Returns whether each key is known to have had one queue since the topic was made.

        Raises:
            TopicNotFound, ConnectionLost: as `ranges`.
        """
        ...

    def identity(self, topic: str) -> str:
        """Returns the UUID that a topic got when it was made; empty: the queue does not know.

        Raises:
            TopicNotFound, ConnectionLost: as `ranges`.
        """
        ...

    def read(
        self, queue: QueueRef, start: int, end: int, *, bytes_max: int = READ_BYTES
    ) -> Iterator[Part]:
        """Yields the batches of a queue, each with the part of it that lies from one offset to before another.

        A part without a message stands for offsets that no reader gets.

        Raises:
            OffsetOutOfRange: the queue does not hold all of them.
            ConnectionLost: the queue is away.
        """
        ...


class BlockingReader:
    """A connection that reads; use it in a `with` block, from one thread at a time.

    Args:
        address: the broker's `host:port`, or several separated by commas: it uses the first one that
            answers; with TLS `tls://host:port?ca=FILE`. Where the leader of a group is gone, it goes on with the next one.
        timeout_ms: the longest silence of the broker, while connecting and later, and the longest time without a leader.
        read_from: "replica": messages come from a replica of the group that is in sync, and from the leader where none
            serves, or what is read is not there yet. What queues hold, and offsets of groups, are the leader's at all
            times. None: as the address says, `tcp://a:9876,b:9876?read_from=replica`; else the leader.

    Raises:
        ConnectionLost: no broker answers there; the sentence says what to check.
    """

    def __init__(
        self, address: str, *, timeout_ms: int = 10_000, read_from: ReadFrom | None = None
    ) -> None:
        self._is_closed = False
        self._replicas: Replicas | None = None
        self._groups: GroupReaders | None = None
        parsed = BrokerAddress.parse(address).reading_from(read_from)
        if len(parsed.groups) > 1:
            self._groups = GroupReaders(parsed, partial(BlockingReader, timeout_ms=timeout_ms))
            return
        self._leader = Leader(address, timeout_ms=timeout_ms)
        if parsed.read_from == "replica":
            self._replicas = Replicas(parsed, timeout_ms)
        # While a replica serves, the leader may be away.
        if self._replicas is None or self._replicas.connection() is None:
            self._leader.connection()

    def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        if self._groups is not None:
            self._groups.close()
            return
        self._leader.close()
        if self._replicas is not None:
            self._replicas.close()

    def __enter__(self) -> "BlockingReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ranges(
        self, topics: Sequence[str], known: Mapping[QueueRef, int] | None = None
    ) -> list[QueueRange]:
        """The lowest offset held and the next readable one of every queue of the topics.

        Args:
            topics: their names.
            known: by queue, the `epoch` of the range that you had before you read it; `changed_from` then says where other
                messages stand since, if brokers have lost some.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        if self._groups is not None:
            return self._groups.ranges(topics, known or {})
        found: list[QueueRange] = []
        for names in topics_in_parts(topics):
            asked = QueueRanges(topics=names, known=_known_of(names, known or {}))
            answer = self._leader.ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)
            require_all(answer.ranges, answer.identities)
            found += answer.ranges
        return found

    def held(self, topic: str, known: Mapping[QueueRef, int] | None = None) -> QueueRangesAnswer:
        """What one broker group has of a topic, which may be a part of it. Raises TopicNotFound."""
        asked = QueueRanges([topic], _known_of([topic], known or {}))
        return self._leader.ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)

    def is_settled(self, topic: str) -> bool:
        """Whether the broker knows that each key has had one queue since the topic was made.

        Ask after `ranges`: the answer then holds for all messages of these ranges.

        Raises:
            TopicNotFound: there is no such topic.
        """
        if self._groups is not None:
            return self._groups.identity(topic).settled
        return any(each.settled for each in self.held(topic).identities)

    def identity(self, topic: str) -> str:
        """The UUID that a topic got when it was made; empty: the broker is of a version that does not know.

        Raises:
            TopicNotFound: there is no such topic.
        """
        if self._groups is not None:
            return self._groups.identity(topic).identity
        return next((each.identity for each in self.held(topic).identities), "")

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """The first offset of every queue of the topics that was stored at a time or later.

        Args:
            topics: their names.
            time_ms: milliseconds since 1970 UTC, by the broker's clock when it stored a message.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        if self._groups is not None:
            return self._groups.offsets_at(topics, time_ms)
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = OffsetsAt(topics=names, time_ms=time_ms)
            found |= _by_queue(self._leader.ask(OffsetsAnswer, RequestCode.OFFSETS_AT, asked))
        return found

    def committed(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """The next offset a group will read of every queue of the topics; -1: never committed.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        if self._groups is not None:
            return self._groups.committed(group, topics)
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = GetOffsets(group=group, topics=names)
            found |= _by_queue(self._leader.ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked))
        return found

    def commit(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Stores offsets as a group's, forward or back; for scripts that read without joining it.

        Raises:
            GroupNotEmpty: the group has members, which commit for themselves.
            TopicNotFound, QueueNotFound, OffsetOutOfRange: no such place; nothing was stored.
        """
        if self._groups is not None:
            self._groups.commit(group, offsets)
            return
        entries = [CommittedOffset(*queue, offset) for queue, offset in offsets.items()]
        asked = CommitOffsets(group=group, member="", generation=0, offsets=entries)
        self._leader.tell(RequestCode.COMMIT_OFFSETS, asked)

    def read(
        self,
        queue: QueueRef,
        start: int,
        end: int,
        *,
        bytes_max: int = READ_BYTES,
        wanted: Callable[[BatchHeader], bool] | None = None,
    ) -> Iterator[tuple[BatchHeader, Columns, int, int]]:
        """Reads the offsets from `start` to before `end`.

        Args:
            queue: the queue.
            start: the first offset.
            end: the offset after the last one.
            bytes_max: how much to ask for at a time.
            wanted: given a batch's header (times, tags, producer), says whether to decode it; other
                batches are skipped.

        Yields:
            A batch's header and columns, and the range of indexes in the columns, from the first
            to before the last, that lies inside [start, end). What a compaction left of a batch
            comes as one for each run of neighbouring offsets. Batches that no reader can decode are
            logged and left out. Where nothing is left in front of `end`, the last range is empty and
            ends there.

        Raises:
            OffsetOutOfRange: the broker does not hold all of it (any more, or yet).
            DataCorrupt, CorruptBatch: a batch was damaged on the way.
            BrokerError: the broker refuses the connection.
            ConnectionLost, RequestTimeout: the broker is gone, and no other one leads; what was yielded is good.
        """
        if not 1 <= bytes_max <= FETCH_BYTES_MAX:
            raise ValueError(f"bytes_max is 1 to {FETCH_BYTES_MAX}, not {bytes_max}")
        if self._groups is not None:
            return self._groups.read(queue, start, end, bytes_max=bytes_max, wanted=wanted)
        return self._read_on(queue, (start, end), bytes_max, wanted)

    def _read_on(
        self,
        queue: QueueRef,
        within: tuple[int, int],
        bytes_max: int,
        wanted: Callable[[BatchHeader], bool] | None,
    ) -> Iterator[Part]:
        at, replicas = within[0], self._replicas
        end = within[1]
        while replicas is not None and at < end and not self._is_closed:
            connection = replicas.connection()
            if connection is None:
                break
            try:
                for part in self._read(connection, queue, (at, end), bytes_max, wanted):
                    at = part[0].base_offset + part[3]
                    yield part
            except _THE_LEADER_KNOWS:
                break
            except MessageQueueError as error:
                replicas.lost(connection, error)
            else:
                return
        search = Search(self._leader)
        while True:
            try:
                for part in self._read(search.connection(), queue, (at, end), bytes_max, wanted):
                    at = part[0].base_offset + part[3]
                    search.found()
                    yield part
            except LEADER_IS_GONE as error:
                search.go_on(error)
            else:
                return

    def _read(
        self,
        connection: BlockingConnection,
        queue: QueueRef,
        within: tuple[int, int],
        bytes_max: int,
        wanted: Callable[[BatchHeader], bool] | None,
    ) -> Iterator[Part]:
        start, end = within
        at = told = start
        waiting = _fetch(connection, queue, at, bytes_max) if at < end else 0
        try:
            while at < end:
                batches = _batches(queue, at, connection.receive(waiting))
                following = batches[-1][0].next_offset
                if following < end:
                    waiting = _fetch(connection, queue, following, bytes_max)
                for header, batch in batches:
                    if header.next_offset <= at:
                        continue
                    # A batch behind `end` tells as well that messages in front of it are missing.
                    if (held_from := min(end, header.base_offset - removed_before(batch))) > at:
                        _note_gap(connection, queue, at, held_from)
                    if header.base_offset >= end:
                        break
                    skipped = wanted is not None and not wanted(header)
                    try:
                        parts = [] if skipped else _parts(queue, header, batch, (at, end))
                    except UndecodableBatch as error:
                        parts = []
                        _log.error(
                            "messages cannot be read and are left out",
                            topic=queue.topic, queue_id=queue.queue_id,
                            first=max(at, header.base_offset), next=header.next_offset,
                            messages=header.next_offset - max(at, header.base_offset),
                            reason=str(error),
                        )  # fmt: skip
                    for part in parts:
                        told = part[0].base_offset + part[3]
                        yield part
                    at = header.next_offset
                at = max(at, following)
                if wanted is None and told < end <= at:
                    # No record is left there; the caller still learns how many offsets have passed.
                    yield header, _NOTHING, end - header.base_offset, end - header.base_offset
        finally:
            connection.forget(waiting)


def _note_gap(connection: BlockingConnection, queue: QueueRef, first: int, following: int) -> None:
    """Says that offsets are missing. Raises OffsetOutOfRange: a replica lacks them, perhaps by damage of its disk alone."""
    if connection.is_to_replica:
        raise OffsetOutOfRange(f"a replica lacks offset {first} of {queue.topic}/{queue.queue_id}")
    _log.warning(
        "offsets are missing in the queue",
        topic=queue.topic, queue_id=queue.queue_id, first=first, next=following,
    )  # fmt: skip


def _fetch(connection: BlockingConnection, queue: QueueRef, offset: int, bytes_max: int) -> int:
    wait_ms = _BEHIND_MS_MAX if connection.is_to_replica else 0
    asked = Fetch(queues=[FetchFrom(*queue, offset)], bytes_max=bytes_max, wait_ms=wait_ms)
    return connection.send(RequestCode.FETCH, asked)


def _batches(
    queue: QueueRef, offset: int, answer: memoryview
) -> list[tuple[BatchHeader, memoryview]]:
    states, body = decode_fetch_answer(answer)
    for state in states.queues:
        if state.code != ResponseCode.OK:
            raise error_for(state.code, state.sentence)
    found: list[tuple[BatchHeader, memoryview]] = []
    for batch in split_batches(body):
        check_head(batch)
        found.append((read_header(batch), batch))
    if not found or found[-1][0].next_offset <= offset:
        raise OffsetOutOfRange(
            f"queue {queue.topic}/{queue.queue_id} has nothing at offset {offset} yet; read up"
            " to the end that `ranges` tells"
        )
    return found


def _known_of(topics: Sequence[str], epochs: Mapping[QueueRef, int]) -> list[KnownEpoch]:
    return [KnownEpoch(*queue, epoch) for queue, epoch in epochs.items() if queue.topic in topics]


def _by_queue(answer: OffsetsAnswer) -> dict[QueueRef, int]:
    return {QueueRef(item.topic, item.queue_id): item.offset for item in answer.offsets}


def _parts(
    queue: QueueRef, header: BatchHeader, batch: memoryview, within: tuple[int, int]
) -> list[tuple[BatchHeader, Columns, int, int]]:
    check_body(batch)
    if header.queue != queue:
        raise DataCorrupt(
            f"the broker sent a batch of {header.queue.topic}/{header.queue.queue_id} as one of"
            f" {queue.topic}/{queue.queue_id}"
        )
    start, end = within
    ranges = (
        (run, columns, max(start - run.base_offset, 0), min(end - run.base_offset, run.count))
        for run, columns in dense_runs(header, *decode_placed(batch, header))
    )
    return [part for part in ranges if part[2] < part[3]]
