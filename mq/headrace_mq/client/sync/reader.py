"""
Reads ranges of queues over a plain blocking socket, without an event loop.

For scripts, and for workers that run no asyncio such as Spark executors. While one answer is being
worked on, the broker prepares the next.

Used by such programs, and by `spark` and the framework's rebuilds. Of consumer groups it knows only
the committed offsets.
"""

import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from headrace_mq._net.address import BrokerAddress, ClientLogin, reasons_of, unreachable
from headrace_mq._net.certificates import broken_sentence, client_context
from headrace_mq._net.client_connection import ANSWER_BYTES_BEFORE_HELLO_MAX, ANSWER_BYTES_MAX
from headrace_mq._net.link import hello_for
from headrace_mq._net.login import login_steps
from headrace_mq._runtime.log import get_logger
from headrace_mq.client_settings import FETCH_BYTES_MAX
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    DataCorrupt,
    NotLeader,
    OffsetOutOfRange,
    RequestTimeout,
    ResponseCode,
    TlsFailed,
    UndecodableBatch,
    error_for,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import LoginAnswer
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
    Body,
    CommitOffsets,
    CommittedOffset,
    ErrorAnswer,
    Fetch,
    FetchFrom,
    GetOffsets,
    HelloAnswer,
    OffsetsAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.protocol.keys import topics_in_parts
from headrace_mq.protocol.sparse import dense_runs, removed_before

__all__ = ["BlockingReader", "Part", "TopicReader"]

RECEIVE_BYTES = 256 << 10
# With TLS one call brings one record, which is no larger.
_RECORD_BYTES = 16 << 10
# Large enough that requests cost nothing compared with their content, small enough to hold twice.
READ_BYTES = 2 << 20

B = TypeVar("B", bound=Body)
# How often a group is asked whether it has a leader again; an election takes about a second.
_ELECTION_S = 0.1

_log = get_logger(__name__)

_NOTHING = Columns([], [], [], [], [])


# A batch, and which of its messages are meant: from one place to before another.
Part = tuple[BatchHeader, Columns, int, int]


class TopicReader(Protocol):
    """Reads topics by offsets; `BlockingReader` does, and an adapter for another queue may."""

    def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        """Returns what every queue of the topics holds.

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
            answers; with TLS `tls://host:port?ca=FILE`.
        timeout_ms: the longest silence of the broker, while connecting and later.

    Raises:
        ConnectionLost: no broker answers there; the sentence says what to check.
    """

    def __init__(self, address: str, *, timeout_ms: int = 10_000) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
        self._next_correlation = 1
        # Requests whose answers a caller waits for, and answers that came while another was waited for.
        self._expected: set[int] = set()
        self._arrived: dict[int, Frame] = {}
        self._socket: socket.socket | None = None
        self._host = ""
        self._receive_bytes = RECEIVE_BYTES
        self._connect()
        self._frames.frame_bytes_max = ANSWER_BYTES_MAX

    def close(self) -> None:
        """Closes the connection."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def __enter__(self) -> "BlockingReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        """The lowest offset held and the next readable one of every queue of the topics.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        found: list[QueueRange] = []
        for names in topics_in_parts(topics):
            asked = QueueRanges(topics=names)
            found += self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked).ranges
        return found

    def is_settled(self, topic: str) -> bool:
        """Whether the broker knows that each key has had one queue since the topic was made.

        Ask after `ranges`: the answer then holds for all messages of these ranges.

        Raises:
            TopicNotFound: there is no such topic.
        """
        answer = self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, QueueRanges([topic]))
        return any(each.settled for each in answer.identities)

    def identity(self, topic: str) -> str:
        """The UUID that a topic got when it was made; empty: the broker is of a version that does not know.

        Raises:
            TopicNotFound: there is no such topic.
        """
        answer = self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, QueueRanges([topic]))
        return next((each.identity for each in answer.identities), "")

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """The first offset of every queue of the topics that was stored at a time or later.

        Args:
            topics: their names.
            time_ms: milliseconds since 1970 UTC, by the broker's clock when it stored a message.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = OffsetsAt(topics=names, time_ms=time_ms)
            found |= _by_queue(self._ask(OffsetsAnswer, RequestCode.OFFSETS_AT, asked))
        return found

    def committed(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """The next offset a group will read of every queue of the topics; -1: never committed.

        Raises:
            TopicNotFound: one of them does not exist.
        """
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = GetOffsets(group=group, topics=names)
            found |= _by_queue(self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked))
        return found

    def commit(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Stores offsets as a group's, forward or back; for scripts that read without joining it.

        Raises:
            GroupNotEmpty: the group has members, which commit for themselves.
            TopicNotFound, QueueNotFound, OffsetOutOfRange: no such place; nothing was stored.
        """
        entries = [CommittedOffset(*queue, offset) for queue, offset in offsets.items()]
        asked = CommitOffsets(group=group, member="", generation=0, offsets=entries)
        self._await(self._send(RequestCode.COMMIT_OFFSETS, asked))

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
            ConnectionLost, RequestTimeout: the broker is gone; what was yielded is good.
        """
        if not 1 <= bytes_max <= FETCH_BYTES_MAX:
            raise ValueError(f"bytes_max is 1 to {FETCH_BYTES_MAX}, not {bytes_max}")
        at = told = start
        waiting = self._fetch(queue, at, bytes_max) if at < end else 0
        try:
            while at < end:
                batches = self._batches(queue, at, self._await(waiting))
                following = batches[-1][0].next_offset
                if following < end:
                    waiting = self._fetch(queue, following, bytes_max)
                for header, batch in batches:
                    if header.next_offset <= at or header.base_offset >= end:
                        continue
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
                    if header.base_offset - removed_before(batch) > at:
                        _log.warning(
                            "offsets are missing in the queue",
                            topic=queue.topic, queue_id=queue.queue_id,
                            first=at, next=header.base_offset,
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
            self._expected.discard(waiting)
            self._arrived.pop(waiting, None)

    def _connect(self) -> None:
        """Connects to the first address that answers; a group without a leader is asked again, for the time of one."""
        until = time.monotonic() + self._timeout_ms / 1_000
        while True:
            failures = self._connect_once()
            if not failures:
                return
            waits = any(isinstance(error, NotLeader) for error in failures.values())
            if not waits or time.monotonic() > until:
                raise unreachable(self._address, reasons_of(failures)) from next(
                    iter(failures.values())
                )
            time.sleep(_ELECTION_S)

    def _connect_once(self) -> dict[tuple[str, int], Exception]:
        """Returns why no address answered; nothing if one did. All together have the time of one."""
        places, tls, login = BrokerAddress.parse(self._address)
        context = None if tls is None else client_context(tls)
        timeout_s = self._timeout_ms / 1_000
        failures: dict[tuple[str, int], Exception] = {}
        for place in places:
            reached = False
            try:
                self._socket = socket.create_connection(place, timeout=timeout_s / len(places))
                reached = True
                self._socket.settimeout(timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._host = place[0]
                if context is not None:
                    self._secure(context)
                self._greet(login)
            except NotLeader as error:
                self.close()
                self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
                failures[place] = error
            except (OSError, ConnectionLost, RequestTimeout) as error:
                self.close()
                if reached and len(places) == 1:
                    raise
                self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
                failures[place] = error
            except BaseException:
                self.close()
                raise
            else:
                return {}
        return failures

    def _greet(self, login: ClientLogin | None) -> None:
        hello = self._ask(HelloAnswer, RequestCode.HELLO, hello_for(str(uuid.uuid4())))
        steps = login_steps(login, hello)
        request = next(steps, None)
        while request is not None:
            answer = self._ask(LoginAnswer, RequestCode.LOGIN, request)
            try:
                request = steps.send(answer)
            except StopIteration:
                return

    def _secure(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._open_socket(), server_hostname=self._host)
        except OSError as error:
            raise self._lost(error) from error
        self._receive_bytes = _RECORD_BYTES

    def _fetch(self, queue: QueueRef, offset: int, bytes_max: int) -> int:
        asked = Fetch(queues=[FetchFrom(*queue, offset)], bytes_max=bytes_max, wait_ms=0)
        return self._send(RequestCode.FETCH, asked)

    def _batches(
        self, queue: QueueRef, offset: int, answer: memoryview
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

    def _ask(self, kind: type[B], code: RequestCode, body: Body) -> B:
        return decode(kind, self._await(self._send(code, body)))

    def _send(self, code: RequestCode, body: Body) -> int:
        correlation = self._next_correlation
        self._next_correlation += 1
        try:
            self._open_socket().sendall(encode_frame(code, correlation, encode(body)))
        except OSError as error:
            raise self._lost(error) from error
        self._expected.add(correlation)
        return correlation

    def _await(self, correlation: int) -> memoryview:
        while correlation not in self._arrived:
            try:
                data = self._open_socket().recv(self._receive_bytes)
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                raise self._lost(None)
            for frame in self._frames.feed(data):
                if frame.is_answer and frame.correlation == 0:
                    # About the connection as a whole, which the broker closes now.
                    self.close()
                    raise error_for(frame.code, decode(ErrorAnswer, frame.body).sentence)
                if frame.correlation in self._expected:
                    self._arrived[frame.correlation] = frame
        frame = self._arrived.pop(correlation)
        self._expected.discard(correlation)
        if frame.code != ResponseCode.OK:
            raise error_for(frame.code, decode(ErrorAnswer, frame.body).sentence)
        return frame.body

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise Closed(f"the reader of {self._address} is closed; make a new one")
        return self._socket

    def _lost(self, error: OSError | None) -> ConnectionLost | RequestTimeout:
        # After a timeout or half an answer the stream is of no use.
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimeout(f"no answer from {self._address} within {self._timeout_ms} ms")
        if isinstance(error, ssl.SSLError):
            return TlsFailed(broken_sentence(error, self._host))
        return ConnectionLost(
            f"the connection to {self._address} ended: {error or 'closed by the broker'}"
        )


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
