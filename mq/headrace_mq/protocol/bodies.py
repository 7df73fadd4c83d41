"""
The bodies of requests and answers, one frozen struct each, in msgpack arrays.

A struct may only grow at its end, with defaults, so that both sides of a version step still read
each other. Two bodies carry record batches after the struct, outside msgpack, so that the broker
moves them without decoding: FETCH answers are `u32 length of the struct, struct, batches`; PRODUCE
requests are batches only.

Used by both sides of the wire: `encode` makes the body of a frame, `decode` reads one. Pure.
"""

import struct
from functools import cache
from typing import TypeVar

import msgspec

from headrace_mq.errors import InvalidArgument, MalformedRequest

__all__ = [
    "Body", "BrokerDescription", "CommitOffsets", "CommittedOffset", "CreateTopic", "DescribeTopics", "ErrorAnswer",
    "Fetch", "FetchAnswer", "FetchFrom", "FetchedQueue", "GetOffsets", "GroupAnswer", "GroupChanged", "GroupMember",
    "Heartbeat", "HeldQueues", "Hello", "HelloAnswer", "JoinGroup", "KnownEpoch", "LeaveGroup", "LockQueues",
    "LocksAnswer", "OffsetsAnswer", "Picked", "ProduceAnswer", "Produced", "QueueLock", "QueueName", "QueueRange",
    "QueueRanges", "QueueRangesAnswer", "Reply", "ReplyPush", "TopicDescription", "TopicFilter", "TopicIdentity",
    "TopicsAnswer", "UnlockQueues", "decode", "decode_fetch_answer", "encode", "encode_fetch_answer",
]  # fmt: skip


class Body(msgspec.Struct, frozen=True, array_like=True):
    """The root of all bodies."""


class ErrorAnswer(Body, frozen=True):
    """What any answer with a code other than OK carries: one sentence that says what to do."""

    sentence: str


class Hello(Body, frozen=True):
    """The first frame of a connection. `client_id` is its own (a UUID); with `reads` a replica in sync may serve it."""

    client_id: str
    version_min: int
    version_max: int
    software: str = ""
    reads: bool = False


class HelloAnswer(Body, frozen=True):
    """The broker's name, the version to speak and the connection's limits; `replica`: it serves reads alone.

    `login` names the mechanisms of which the client must use one before anything else; none: it is let in.
    """

    broker: str
    version: int
    epoch: int
    frame_bytes_max: int
    login: list[str] = []
    replica: bool = False


class Produced(Body, frozen=True):
    """What became of one batch of a PRODUCE request; `base_offset` is its place, `duplicate`: it was stored before."""

    topic: str
    queue_id: int
    base_offset: int
    code: int = 0
    sentence: str = ""
    duplicate: bool = False


class ProduceAnswer(Body, frozen=True):
    """Sent when every batch of the request is durable (flush="always") or refused."""

    results: list[Produced]


class FetchFrom(Body, frozen=True):
    """One queue of a FETCH and the offset to read from."""

    topic: str
    queue_id: int
    offset: int


class TopicFilter(Body, frozen=True):
    """Which messages of a topic are wanted: a condition of `headrace_mq.filters`."""

    topic: str
    condition: str


class Fetch(Body, frozen=True):
    """Reads from many queues at once; waits up to `wait_ms` when there is nothing to read.

    `filters` names the topics of which some messages are wanted; the answer may have more. With `picks` it may have some
    as `Picked`. With `heads` a topic that the user may read but not consume is answered with heads: no bodies, no headers.
    """

    queues: list[FetchFrom]
    bytes_max: int
    wait_ms: int
    group: str = ""
    filters: list[TopicFilter] = []
    picks: bool = False
    heads: bool = False


class FetchedQueue(Body, frozen=True):
    """The state of one queue in a FETCH answer.

    `first` is the lowest offset held, `end` the next to be readable; `code` is OFFSET_OUT_OF_RANGE, QUEUE_NOT_FOUND
    or QUEUE_ELSEWHERE where it cannot be served. `next` is for filtered topics: where to go on, past what was not selected; -1 elsewhere.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    code: int = 0
    sentence: str = ""
    next: int = -1


class Picked(Body, frozen=True):
    """Selected messages of one queue, out of batches of which most was not selected.

    `messages` is msgpack as `headrace_mq.protocol.filter.picks` says, `checksum` its CRC-32C. All of one
    `Picked` stand before or behind all of any other, and of any batch of the queue.
    """

    topic: str
    queue_id: int
    checksum: int
    messages: bytes


class FetchAnswer(Body, frozen=True):
    """States of the queues that have something to say; batches follow, and one may begin below the asked offset."""

    queues: list[FetchedQueue]
    picked: list[Picked] = []


class CommittedOffset(Body, frozen=True):
    """The next offset a group will read from one queue; -1 where it never committed.

    `lock_epoch` is for commits: that of the member's lock on the queue, 0 without one.
    """

    topic: str
    queue_id: int
    offset: int
    lock_epoch: int = 0


class CommitOffsets(Body, frozen=True):
    """Stores a group's offsets. `member` empty: administration, allowed without membership."""

    group: str
    member: str
    generation: int
    offsets: list[CommittedOffset]


class GetOffsets(Body, frozen=True):
    """Asks for a group's offsets on all queues of the topics."""

    group: str
    topics: list[str]


class OffsetsAnswer(Body, frozen=True):
    """The answer to GET_OFFSETS and OFFSETS_AT, one entry per queue."""

    offsets: list[CommittedOffset]


class HeldQueues(Body, frozen=True):
    """The queues of one topic that a member holds."""

    topic: str
    queue_ids: list[int]


class GroupMember(Body, frozen=True):
    """A member, the topics it subscribed to, and what it last said it held.

    `held` is the same in all answers and pushes of one generation.
    """

    member: str
    topics: list[str]
    held: list[HeldQueues] = []


class JoinGroup(Body, frozen=True):
    """Enters a group; the same member joins again to change its topics.

    `held` is for allocations that move few queues; others leave it empty. `contract` names what all
    members of a group have to do alike, with how this one does it; what it leaves out is unknown.
    `away_ms`: how long its place is kept when its connection ends, 0: not at all; and its name was
    chosen, so no other client may use it meanwhile. -1: it is any name.
    """

    group: str
    member: str
    topics: list[str]
    held: list[HeldQueues] = []
    contract: dict[str, str] = {}
    away_ms: int = -1


class GroupAnswer(Body, frozen=True):
    """Everyone's view of the group: the generation grows with every change of members.

    `consume` and `retries` are what an operator said of the group, as in GroupRules.
    """

    generation: int
    members: list[GroupMember]
    consume: bool = True
    retries: int = -1


class LeaveGroup(Body, frozen=True):
    """Leaves a group at once instead of by expiry; with `away` only as the end of a connection does."""

    group: str
    member: str
    away: bool = False


class Heartbeat(Body, frozen=True):
    """Keeps a member alive; answered with GroupAnswer. `group` empty: only the connection.

    `held` replaces what the member said before; the next view of the group has it.
    """

    group: str = ""
    member: str = ""
    held: list[HeldQueues] = []


class GroupChanged(Body, frozen=True):
    """PUSHED_GROUP_CHANGE: the group's members changed; the same content as GroupAnswer."""

    group: str
    generation: int
    members: list[GroupMember]


class QueueName(Body, frozen=True):
    """One queue."""

    topic: str
    queue_id: int


class LockQueues(Body, frozen=True):
    """Asks for the locks on some queues; what the member holds already is granted again."""

    group: str
    member: str
    queues: list[QueueName]


class QueueLock(Body, frozen=True):
    """A granted lock; commits name its epoch."""

    topic: str
    queue_id: int
    epoch: int


class LocksAnswer(Body, frozen=True):
    """The locks that were granted; the others are held by other members.

    A member that sent no heartbeat for `expiry_ms` may have lost them to others.
    """

    locks: list[QueueLock]
    expiry_ms: int


class UnlockQueues(Body, frozen=True):
    """Gives locks back; locks of others stay as they are."""

    group: str
    member: str
    queues: list[QueueName]


class Reply(Body, frozen=True):
    """Sends `body` to the connection whose Hello gave `client_id`; not stored, at most once."""

    client_id: str
    correlation: str
    body: bytes


class ReplyPush(Body, frozen=True):
    """PUSHED_REPLY: what a Reply delivers."""

    correlation: str
    body: bytes


class CreateTopic(Body, frozen=True):
    """Creates a topic, or confirms that it exists with at least these settings.

    `queues` 0 asks for the broker's default. `retention` is "forever", "transient" or "compact".
    `owned`: it is spread over broker groups, which all have its `identity`, and this one gets these of its `queues`.
    """

    topic: str
    queues: int = 0
    retention: str = "transient"
    owned: list[int] = []
    identity: str = ""


class DescribeTopics(Body, frozen=True):
    """Asks for some topics, or for all with an empty list."""

    topics: list[str] = []
    create_missing: bool = False


class TopicDescription(Body, frozen=True):
    """A topic, its number of queues, its retention policy, its frozen queues; `owned`: this group's where it is spread."""

    topic: str
    queues: int
    retention: str
    unwritable: list[int] = []
    unreadable: list[int] = []
    owned: list[int] = []


class TopicsAnswer(Body, frozen=True):
    """The answer to CREATE_TOPIC and DESCRIBE_TOPICS; unknown topics are left out."""

    topics: list[TopicDescription]


class QueueRange(Body, frozen=True):
    """One queue's lowest offset held and its next readable offset.

    `start` is the offset of its first message ever. It is above 0 if an earlier queue of its name had
    messages: a topic that is made again goes on with its offsets. -1: the broker is of a version before
    that, which never lets messages go that are kept forever.

    `epoch` is the broker's; 0: an older version. `changed_from` answers a `KnownEpoch`: the lowest offset at which another message may
    stand now than in that epoch; -1: the queue was not named, or nothing was lost since.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    start: int = -1
    epoch: int = 0
    changed_from: int = -1

    def kept(self, offset: int) -> int:
        """Returns an offset that was known in the epoch named, or the lowest changed one if that is below it."""
        return offset if self.changed_from < 0 else min(offset, self.changed_from)

    def has_lost(self, offset: int) -> bool:
        """Whether it has lost messages from an offset on; it never had those below its start."""
        return self.start >= 0 and max(offset, self.start) < self.first


class KnownEpoch(Body, frozen=True):
    """The epoch in which a reader was served what it knows of a queue: at the latest when it asked for its last message."""

    topic: str
    queue_id: int
    epoch: int


class QueueRanges(Body, frozen=True):
    """Asks for the ranges of all queues of the topics; `known`: and where messages have changed since."""

    topics: list[str]
    known: list[KnownEpoch] = []


class TopicIdentity(Body, frozen=True):
    """The UUID that a topic got when it was made.

    `settled`: each key has had one queue since; none was added, frozen for writing, thawed or deleted. `queues`: how many
    it has, over all broker groups; 0: an older broker, without other groups.
    """

    topic: str
    identity: str
    settled: bool = False
    queues: int = 0


class QueueRangesAnswer(Body, frozen=True):
    """The answer to QUEUE_RANGES; of older brokers without identities and epochs. In `lossy` a group last lost messages."""

    ranges: list[QueueRange]
    identities: list[TopicIdentity] = []
    epoch: int = 0
    lossy: int = 0


class BrokerDescription(Body, frozen=True):
    """The answer to DESCRIBE_BROKER (its request has no body)."""

    broker: str
    epoch: int
    started_at_ms: int
    connections: int
    read_only: bool


B = TypeVar("B", bound=Body)

_encoder = msgspec.msgpack.Encoder()
_LENGTH = struct.Struct("<I")


@cache
def _decoder(kind: type[B]) -> msgspec.msgpack.Decoder[B]:
    return msgspec.msgpack.Decoder(kind)


def encode(body: Body) -> bytes:
    """Encodes a body as a msgpack array.

    Raises:
        InvalidArgument: a number does not fit into 64 bits, or a text is no Unicode.
    """
    try:
        return _encoder.encode(body)
    except OverflowError as error:
        raise InvalidArgument(
            f"a number of a {type(body).__name__} is beyond 64 bits; give a smaller one"
        ) from error
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a text of a {type(body).__name__} is no Unicode: {error.object!r}; correct it"
        ) from error


def decode(kind: type[B], data: bytes | bytearray | memoryview) -> B:
    """Decodes a body of the given kind.

    Raises:
        MalformedRequest: the bytes are no such body; the sentence says where they go wrong.
    """
    try:
        decoder: msgspec.msgpack.Decoder[B] = _decoder(kind)
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"the body is no {kind.__name__}: {error}") from error


def encode_fetch_answer(answer: FetchAnswer) -> bytes:
    """Encodes the part of a FETCH answer that stands before the batches."""
    body = _encoder.encode(answer)
    return _LENGTH.pack(len(body)) + body


def decode_fetch_answer(data: memoryview) -> tuple[FetchAnswer, memoryview]:
    """Splits a FETCH answer into its struct and the bytes of its batches."""
    if len(data) < _LENGTH.size:
        raise MalformedRequest("a FETCH answer is shorter than its length field")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return decode(FetchAnswer, data[_LENGTH.size : end]), data[end:]
