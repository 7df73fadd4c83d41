"""
The bodies of administration: queues, groups and their offsets, connections, searches by key.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults. A FIND_MESSAGES
answer is `u32 length of the struct, struct, batches`, like that of FETCH.

Used by the broker's handlers and by `admin`. Pure.
"""

import struct

import msgspec

from headrace_mq.errors import MalformedRequest
from headrace_mq.protocol.bodies import Body, decode, encode
from headrace_mq.protocol.limits import THEIR_OWN, GroupRules, LeaderDescription

__all__ = [
    "NO_TRAFFIC",
    "ArchiveDescription",
    "BrokerStatus",
    "CloneOffsets",
    "CompactionDescription",
    "ConnectionDescription",
    "ConnectionsAnswer",
    "DeleteGroup",
    "DeleteQueues",
    "DescribeGroup",
    "DescribeLag",
    "DescribeProducers",
    "DescribeQueues",
    "FindAnswer",
    "FindMessages",
    "FreezeQueues",
    "GroupDescription",
    "GroupSummary",
    "GroupsAnswer",
    "LagAnswer",
    "ListConnections",
    "ListGroups",
    "LogDescription",
    "MemberDescription",
    "OffsetMove",
    "OffsetMoves",
    "OffsetsAt",
    "ProcessDescription",
    "ProducerDescription",
    "ProducersAnswer",
    "QueueDeletion",
    "QueueDeletions",
    "QueueDescription",
    "QueueLag",
    "QueuesAnswer",
    "ResetOffsets",
    "Traffic",
    "decode_find_answer",
    "encode_find_answer",
]

_LENGTH = struct.Struct("<I")


class Traffic(Body, frozen=True):
    """What went through in the last whole second, and in the last ten."""

    messages_1s: int = 0
    bytes_1s: int = 0
    messages_10s: int = 0
    bytes_10s: int = 0


NO_TRAFFIC = Traffic()


class DescribeQueues(Body, frozen=True):
    """Asks for the state of all queues of the topics."""

    topics: list[str]


class QueueDescription(Body, frozen=True):
    """One queue: its range, whether it is open, and when its first and last message were stored.

    The times are 0 where the queue holds nothing. `fetched` is over all groups and other readers.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    writable: bool
    readable: bool
    first_stored_at_ms: int
    last_stored_at_ms: int
    produced: Traffic = NO_TRAFFIC
    fetched: Traffic = NO_TRAFFIC


class QueuesAnswer(Body, frozen=True):
    """The answer to DESCRIBE_QUEUES."""

    queues: list[QueueDescription]


class FreezeQueues(Body, frozen=True):
    """Freezes `writing` or `reading` of queues of a topic, or opens them again with `frozen` false; no numbers: all."""

    topic: str
    queues: list[int]
    writing: bool
    reading: bool
    frozen: bool


class DeleteQueues(Body, frozen=True):
    """Deletes a topic's queues from number `keep` on: all of the topic with 0."""

    topic: str
    keep: int = 0
    dry_run: bool = False


class QueueDeletion(Body, frozen=True):
    """A queue that DELETE_QUEUES names: what goes with it, and why it cannot go yet."""

    topic: str
    queue_id: int
    first: int
    end: int
    obstacles: list[str]


class QueueDeletions(Body, frozen=True):
    """The answer to DELETE_QUEUES; `deleted` is false after a dry run."""

    deleted: bool
    queues: list[QueueDeletion]


class OffsetsAt(Body, frozen=True):
    """Asks for the first offset stored at a time or later, of all queues of the topics."""

    topics: list[str]
    time_ms: int


class ResetOffsets(Body, frozen=True):
    """Moves an idle group: `to` is "earliest", "latest", "offset", "time", "shift" or "undo".

    `value` is the offset, the time in milliseconds since 1970 UTC, or how many messages to go
    forward (negative: back); of "undo" it is `reset_at_ms` of the move that is meant, or 0. No topics: all that the group committed offsets in. No queue numbers:
    all queues.
    """

    group: str
    to: str
    value: int = 0
    topics: list[str] = msgspec.field(default_factory=list)
    queues: list[int] = msgspec.field(default_factory=list)
    dry_run: bool = False


class CloneOffsets(Body, frozen=True):
    """Lets an idle group stand where another one stands; no topics: all of the source's."""

    source: str
    target: str
    topics: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False


class DeleteGroup(Body, frozen=True):
    """Drops all offsets of an idle group."""

    group: str
    dry_run: bool = False


class OffsetMove(Body, frozen=True):
    """One offset of a group, before and after; -1 where there is none.

    `redelivered` counts the messages held that the group had passed and would be given again,
    `skipped` those that it had not reached and would never be given.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    before: int
    after: int
    redelivered: int
    skipped: int


class OffsetMoves(Body, frozen=True):
    """The answer to RESET_OFFSETS, CLONE_OFFSETS and DELETE_GROUP; not `moved`: a dry run; the rest is of an undo."""

    moved: bool
    moves: list[OffsetMove]
    hindered: str = ""
    reset_at_ms: int = 0
    reset_by: str = ""


class ListGroups(Body, frozen=True):
    """Asks for the groups behind a name, in order of their names."""

    after: str = ""


class GroupSummary(Body, frozen=True):
    """A group: its members, the queues it reads or has read, and the messages ahead of it.

    Without `commits` no offset of its is kept here: it is new, or keeps them itself, as projections
    do with their rows, and `lag` counts all that its queues hold.
    Of a group with more than 4,096 queues it tells of the first 4,096. `consume` and `retries` are what
    an operator said of it, as in GroupRules.
    """

    group: str
    members: int
    queues: int
    lag: int
    fetched: Traffic = NO_TRAFFIC
    commits: bool = True
    consume: bool = True
    retries: int = THEIR_OWN


class GroupsAnswer(Body, frozen=True):
    """The answer to LIST_GROUPS; with `more`, ask again behind the last name."""

    groups: list[GroupSummary]
    more: bool


class DescribeGroup(Body, frozen=True):
    """Asks for the members and the topics of a group."""

    group: str


class MemberDescription(Body, frozen=True):
    """A member: its connection's address, software and begin, its topics, its last sign of life.

    `throttled_ms` is how long quotas held up requests of that connection, in all. `away_ms` is 0, or the
    member has no connection, and its place is kept for so long yet.
    """

    member: str
    address: str
    software: str
    since_ms: int
    heard_ms_ago: int
    topics: list[str]
    throttled_ms: int = 0
    away_ms: int = 0


class GroupDescription(Body, frozen=True):
    """The answer to DESCRIBE_GROUP; the topics have offsets of the group, or its members' interest.

    `rules` has one entry; a broker of a version before that sends none.
    """

    group: str
    generation: int
    members: list[MemberDescription]
    topics: list[str]
    rules: list[GroupRules] = msgspec.field(default_factory=list)


class DescribeLag(Body, frozen=True):
    """Asks how far behind a group is in all queues of the topics."""

    group: str
    topics: list[str]


class QueueLag(Body, frozen=True):
    """How far behind a group is in one queue.

    `committed` is -1 where it never committed. `lag` counts the messages held from there, or from
    the first one, to the end; `oldest_stored_at_ms` tells when the first of them was stored, 0 where
    there is none. `member` has had the queue for `held_ms`, by its lock or by what it says; empty: no
    member has it, or none says so.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    committed: int
    lag: int
    oldest_stored_at_ms: int
    fetched: Traffic = NO_TRAFFIC
    member: str = ""
    held_ms: int = 0


class LagAnswer(Body, frozen=True):
    """The answer to DESCRIBE_LAG; `now_ms` is the broker's time, to tell ages by."""

    now_ms: int
    queues: list[QueueLag]


class ListConnections(Body, frozen=True):
    """Asks for the connections that do a certain thing: "producer", "consumer", "reader"; "": all."""

    role: str = ""


class ConnectionDescription(Body, frozen=True):
    """One connection: its client, begin and kind, and the bytes in both directions.

    `produced` counts the messages taken from it; `groups` names at most 16 that it is a member of;
    `throttled_ms` is how long its requests were held up, in all; `user` has logged in, or is the subject of its
    certificate, or is empty.
    """

    client_id: str
    address: str
    software: str
    since_ms: int
    roles: list[str]
    groups: list[str]
    received_bytes: int
    sent_bytes: int
    produced: int
    throttled_ms: int = 0
    user: str = ""


class ConnectionsAnswer(Body, frozen=True):
    """The answer to LIST_CONNECTIONS."""

    connections: list[ConnectionDescription]


class LogDescription(Body, frozen=True):
    """One of the store's logs: its segments, what they take on the disk, and its positions."""

    log: str
    segments: int
    bytes: int
    first: int
    end: int


class ArchiveDescription(Body, frozen=True):
    """The broker's archive: what it did since its start, and what waits for it.

    `waiting_ms` is how long the oldest of `waiting_bytes` has waited at least; `alarm` says why
    an operator should look, `failure` why the last attempt failed, or they are empty.
    """

    database: str
    messages: int
    waiting_bytes: int
    waiting_ms: int
    alarm: str
    failure: str
    blocks_read: int


class CompactionDescription(Body, frozen=True):
    """What compactions did since the start, and what waits for them.

    `kept` and `removed` count messages of the last one; `last_run_ms` is 0 before it.
    """

    dirty_bytes: int = 0
    clean_bytes: int = 0
    runs: int = 0
    last_run_ms: int = 0
    kept: int = 0
    removed: int = 0
    freed_bytes: int = 0
    trouble: str = ""


class ProcessDescription(Body, frozen=True):
    """The broker's process and the disk of its files; -1: its system does not tell.

    `cpu_ms` is processor time since the start, `memory_bytes` what it has in memory. Of the disk it may use `disk_bytes`
    in all, and `disk_free_bytes` are free; it refuses messages above `refuse_percent` of them.
    """

    software: str
    cpu_ms: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    refuse_percent: int


class BrokerStatus(Body, frozen=True):
    """The answer to BROKER_STATUS; `refuses` says why no message is taken, or is empty.

    `throttled` counts the requests that were held up since the start, `held` those that wait now; `alarms` names the groups
    whose backlog is near its limit, or above it. `archive` has one entry where the broker has an archive. `clock_alarm` says
    that the machine's clock was set, for a day, or is empty. `damaged` counts the places of the logs that were found damaged
    since the start, `damage` tells the last 100 of them, one sentence each. `paused` counts the groups that an operator
    paused, `paused_groups` names the first 100. `process` has one entry; none from an earlier version. In a group, `repaired`
    counts the damaged places that got sound bytes from another broker since the start, `unrepaired` those for which none had
    them; `shortage` says why nothing is acknowledged, or is empty; `leads` has one entry.
    """

    now_ms: int
    topics: int
    queues: int
    groups: int
    connections: int
    refuses: str
    produced: Traffic
    fetched: Traffic
    logs: list[LogDescription]
    throttled: int = 0
    held: int = 0
    archive: list[ArchiveDescription] = msgspec.field(default_factory=list)
    compaction: CompactionDescription = CompactionDescription()
    alarms: list[str] = msgspec.field(default_factory=list)
    clock_alarm: str = ""
    damaged: int = 0
    damage: list[str] = msgspec.field(default_factory=list)
    paused: int = 0
    paused_groups: list[str] = msgspec.field(default_factory=list)
    process: list[ProcessDescription] = msgspec.field(default_factory=list)
    repaired: int = 0
    unrepaired: int = 0
    shortage: str = ""
    leads: list[LeaderDescription] = msgspec.field(default_factory=list)


class FindMessages(Body, frozen=True):
    """Searches for messages of a key that were appended from `from_ms` on and before `to_ms`.

    `log` and `position` are those of the last answer, to go on; an empty `log` begins. `heads`: as in Fetch.
    """

    topic: str
    key: str
    from_ms: int
    to_ms: int
    messages_max: int
    bytes_max: int
    log: str = ""
    position: int = 0
    heads: bool = False


class FindAnswer(Body, frozen=True):
    """What was found so far, and where to go on; an empty `log`: everything was searched."""

    messages: int
    log: str
    position: int


def encode_find_answer(answer: FindAnswer) -> bytes:
    """Encodes the part of the answer that stands before the batches."""
    body = encode(answer)
    return _LENGTH.pack(len(body)) + body


def decode_find_answer(data: memoryview) -> tuple[FindAnswer, memoryview]:
    """Splits an answer into its struct and the bytes of its batches.

    Raises:
        MalformedRequest: it is none.
    """
    if len(data) < _LENGTH.size:
        raise MalformedRequest("a FIND_MESSAGES answer is shorter than its length field")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return decode(FindAnswer, data[_LENGTH.size : end]), data[end:]


class DescribeProducers(Body, frozen=True):
    """Asks for the producers with some ids; at most 1,000."""

    producer_ids: list[int]


class ProducerDescription(Body, frozen=True):
    """A producer as of its newest connection, which was made at `since_ms`."""

    producer_id: int
    client_id: str
    address: str
    software: str
    since_ms: int


class ProducersAnswer(Body, frozen=True):
    """The answer to DESCRIBE_PRODUCERS: those of them that are remembered."""

    producers: list[ProducerDescription]
