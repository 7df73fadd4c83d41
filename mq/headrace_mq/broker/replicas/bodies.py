"""
The bodies of FOLLOW: a replica asks its leader for what comes after the ends of its logs.

    replica ── FollowRequest: my ends, what is on my disk, which documents I have ──▶ leader
            ◀── FollowAnswer: bytes from there on, or where the logs part; newer documents ──

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Used by `broker.replicas` on both sides. Pure.
"""

import msgspec

from headrace_mq.protocol.bodies import Body

__all__ = [
    "DamagedRange",
    "Document",
    "EpochStart",
    "FollowAnswer",
    "FollowRequest",
    "LogEnd",
    "LogPart",
    "QueueStart",
    "SoundRange",
]


class LogEnd(Body, frozen=True):
    """One log of a replica: its end, the epoch of its last byte, and what the leader may count on.

    `counted` is -1 while the leader of this epoch has not confirmed what the replica has. Of a log that is compacted:
    it is clean below `clean`, has removed no tombstone at or above `forgotten`, was copied from segments of this
    `version`, and has `copied` bytes of the leader's file `identity`.
    """

    log: str
    end: int
    last: int
    counted: int
    clean: int = 0
    forgotten: int = 0
    version: int = 0
    identity: int = 0
    copied: int = 0


class DamagedRange(Body, frozen=True):
    """A range of a log: one that is damaged at the sender, and that it wants, or one that came damaged."""

    log: str
    position: int
    length: int


class SoundRange(Body, frozen=True):
    """Sound bytes for a range that was wanted, from its begin on; empty if the sender has none.

    `compacted`: it has none because it compacted the log there.
    """

    log: str
    position: int
    data: bytes
    compacted: bool = False


class FollowRequest(Body, frozen=True):
    """What a replica has, and how long the leader may wait for something new, in milliseconds.

    `documents` counts the changes of documents of this epoch that the replica has. `group_id` is that of its record, empty
    where it is not known. `wanted` is damaged here, `found` answers what the leader wanted, `refused` came damaged. `level`: what
    the replica knows of groups, see `FEATURE_LEVEL`.
    """

    member: str
    store_id: str
    epoch: int
    logs: list[LogEnd]
    documents: int
    wait_ms: int
    bytes_max: int
    group_id: str = ""
    wanted: list[DamagedRange] = msgspec.field(default_factory=list)
    found: list[SoundRange] = msgspec.field(default_factory=list)
    refused: list[DamagedRange] = msgspec.field(default_factory=list)
    level: int = 0


class EpochStart(Body, frozen=True):
    """Where an epoch begins in a log."""

    epoch: int
    position: int


class QueueStart(Body, frozen=True):
    """The first offset that a leader's queue holds; its end, if it holds none."""

    topic: str
    queue_id: int
    offset: int


class LogPart(Body, frozen=True):
    """What a leader says of one log.

    Equal logs: bytes from `position` on, whole groups of the segment that begins at `base`, and the epochs that begin
    in them. A log that ends before the leader's begins (`restarted`): it goes on at `position`, the base of the leader's
    first segment, with these `queues` and the epochs up to there. Logs that part: `found` is the newest epoch that both
    have, `found_end` its end at the leader. A log that ends where the leader has a compacted segment: a `piece` of its
    file, from byte `at` on; the next segment begins at `covers`. A log that ends inside one is dropped (`rewound`).
    Tombstones below `tombstones` may go. Below `shared`, all in sync have the log; -1: that is `committed`. `lossy`, of logs that part: the
    epoch that last began with a loss, or may have.
    """

    log: str
    position: int
    last: int = 0
    committed: int = 0
    first: int = 0
    base: int = 0
    file_bytes: int = 0
    data: bytes = b""
    starts: list[EpochStart] = msgspec.field(default_factory=list)
    parted: bool = False
    found: int = 0
    found_end: int = 0
    restarted: bool = False
    queues: list[QueueStart] = msgspec.field(default_factory=list)
    tombstones: int = 0
    rewound: bool = False
    piece: bytes = b""
    at: int = 0
    covers: int = 0
    identity: int = 0
    version: int = 0
    shared: int = -1
    lossy: int = 0


class Document(Body, frozen=True):
    """One of the broker's own files; `missing`: the leader has no such file. `version` counts changes of the epoch."""

    name: str
    version: int
    content: bytes
    missing: bool = False


class FollowAnswer(Body, frozen=True):
    """The leader's answer; `epoch` is greater than that of the question where the question was of an earlier one.

    `lead`: the replica has everything, and shall lead now; with `leaves`, the leader stops. `wanted` and `found` are those
    of the leader's own damage and of the replica's. `version`: of the record, by which the leader acknowledges nothing more
    that a replica with `lead` lacks; -1: it does not say.
    """

    epoch: int
    logs: list[LogPart] = msgspec.field(default_factory=list)
    documents: list[Document] = msgspec.field(default_factory=list)
    lead: bool = False
    leaves: bool = False
    wanted: list[DamagedRange] = msgspec.field(default_factory=list)
    found: list[SoundRange] = msgspec.field(default_factory=list)
    version: int = -1
