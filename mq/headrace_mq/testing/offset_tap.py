"""
Listens in on a simulated network: notes what members commit, and what the broker answers.

All that a client and a broker say to each other about a group's offsets is on the wire. The tap notes
requests where they arrive and answers where they leave, so that the order is the broker's own.

Used by simulations; reads frames of the simulated network and writes a `history`.
"""

from collections.abc import Callable

from headrace_mq.errors import ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    GetOffsets,
    LockQueues,
    LocksAnswer,
    OffsetsAnswer,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader
from headrace_mq.testing.history import Committed, Event, Granted, Told
from headrace_mq.testing.simulated_stream import Packet

__all__ = ["OffsetTap"]

FRAME_BYTES_MAX = 64 << 20

Asked = CommitOffsets | GetOffsets | LockQueues


class OffsetTap:
    """Adds `Committed`, `Granted` and `Told` to a history.

    Args:
        note: takes the events.
        now_ms: tells the time.
    """

    def __init__(self, note: Callable[[Event], None], now_ms: Callable[[], int]) -> None:
        self._note = note
        self._now_ms = now_ms
        self._readers: dict[tuple[int, bool], FrameReader] = {}
        self._asked: dict[tuple[int, int], Asked] = {}

    def __call__(self, packet: Packet) -> None:
        """Takes bytes of any stream."""
        stream, upstream = packet.stream, packet.upstream
        if upstream != packet.arrives:
            return
        reader = self._readers.get((stream, upstream))
        if reader is None:
            reader = self._readers[stream, upstream] = FrameReader(FRAME_BYTES_MAX)
        for frame in reader.feed(packet.data):
            if upstream:
                self._request(stream, frame)
            elif frame.is_answer:
                self._answer(stream, frame)

    def _request(self, stream: int, frame: Frame) -> None:
        if frame.code == RequestCode.COMMIT_OFFSETS:
            request = decode(CommitOffsets, frame.body)
            self._asked[stream, frame.correlation] = request
            # An administrator's commit is a reset, which the test notes itself.
            if request.member:
                self._commit(request, accepted=False)
        elif frame.code == RequestCode.GET_OFFSETS:
            self._asked[stream, frame.correlation] = decode(GetOffsets, frame.body)
        elif frame.code == RequestCode.LOCK_QUEUES:
            self._asked[stream, frame.correlation] = decode(LockQueues, frame.body)

    def _answer(self, stream: int, frame: Frame) -> None:
        asked = self._asked.pop((stream, frame.correlation), None)
        if asked is None or frame.code != ResponseCode.OK:
            return
        if isinstance(asked, CommitOffsets):
            if asked.member:
                self._commit(asked, accepted=True)
            return
        if isinstance(asked, LockQueues):
            for lock in decode(LocksAnswer, frame.body).locks:
                queue = QueueRef(lock.topic, lock.queue_id)
                self._note(Granted(self._now_ms(), asked.group, asked.member, queue, lock.epoch))
            return
        for item in decode(OffsetsAnswer, frame.body).offsets:
            queue = QueueRef(item.topic, item.queue_id)
            self._note(Told(self._now_ms(), asked.group, queue, item.offset))

    def _commit(self, request: CommitOffsets, *, accepted: bool) -> None:
        for item in request.offsets:
            queue = QueueRef(item.topic, item.queue_id)
            self._note(
                Committed(
                    self._now_ms(),
                    request.group,
                    request.member,
                    queue,
                    item.offset,
                    accepted,
                    item.lock_epoch,
                )
            )
