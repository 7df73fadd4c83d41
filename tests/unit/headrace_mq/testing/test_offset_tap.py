"""Listening in on commits and offsets, as the broker sees them."""

from headrace_mq.errors import ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    GetOffsets,
    LockQueues,
    LocksAnswer,
    OffsetsAnswer,
    QueueLock,
    QueueName,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, encode_frame
from headrace_mq.testing.history import Committed, Event, Granted, Told
from headrace_mq.testing.offset_tap import OffsetTap
from headrace_mq.testing.simulated_stream import Packet

Q = QueueRef("t", 0)


def heard(*packets: tuple[bool, bool, bytes], stream: int = 1) -> list[Event]:
    events: list[Event] = []
    tap = OffsetTap(events.append, lambda: 5)
    for upstream, arrives, data in packets:
        tap(Packet(stream, upstream, arrives, "", "", data))
    return events


def request(code: RequestCode, body: bytes) -> tuple[bool, bool, bytes]:
    return True, True, encode_frame(code, 7, body)


def answer(code: int = ResponseCode.OK, body: bytes = b"") -> tuple[bool, bool, bytes]:
    return False, False, encode_frame(code, 7, body, flags=FLAG_ANSWER)


def commit(member: str = "m") -> tuple[bool, bool, bytes]:
    body = encode(CommitOffsets("g", member, 1, [CommittedOffset("t", 0, 3, 9)]))
    return request(RequestCode.COMMIT_OFFSETS, body)


def test_a_commit_is_heard_as_asked_for_and_once_answered_as_taken() -> None:
    asked, taken = (Committed(5, "g", "m", Q, 3, accepted, 9) for accepted in (False, True))
    assert heard(commit()) == [asked]
    assert heard(commit(), answer()) == [asked, taken]
    assert heard(commit(), answer(ResponseCode.NOT_GROUP_MEMBER)) == [asked]
    assert heard(commit(), answer(), answer()) == [asked, taken]


def test_an_administrators_commit_is_not_a_members() -> None:
    assert heard(commit(member=""), answer()) == []


def test_answers_of_a_broker_are_noted() -> None:
    asked = request(RequestCode.GET_OFFSETS, encode(GetOffsets("g", ["t"])))
    offsets = encode(OffsetsAnswer([CommittedOffset("t", 0, -1)]))
    assert heard(asked, answer(body=offsets)) == [Told(5, "g", Q, -1)]


def test_a_lock_is_heard_when_it_is_granted() -> None:
    asked = request(RequestCode.LOCK_QUEUES, encode(LockQueues("g", "m", [QueueName("t", 0)])))
    locks = encode(LocksAnswer([QueueLock("t", 0, 9)], 1_000))
    assert heard(asked) == []
    assert heard(asked, answer(body=locks)) == [Granted(5, "g", "m", Q, 9)]


def test_frames_are_put_together_from_any_pieces() -> None:
    (upstream, arrives, data) = commit()
    pieces = [(upstream, arrives, data[at : at + 1]) for at in range(len(data))]
    assert len(heard(*pieces)) == 1


def test_the_tap_notes_frames_on_the_brokers_side_of_the_wire() -> None:
    upstream, _, data = commit()
    assert heard((upstream, False, data)) == []
