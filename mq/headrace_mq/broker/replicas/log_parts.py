"""
What a leader answers to a replica about one log: bytes from its end on, or what it must drop first.

    the replica's log ends …      before the leader's begins ─▶ restarted: go on where that one begins
                                  in what is compacted here  ─▶ at a segment's beginning: the segment as a file;
                                                                else rewound: drop the log and copy it whole
                                  behind both                ─▶ whole groups, as they stand in the leader's file
                                  behind the common epochs   ─▶ parted: cut it there

A replica puts no compacted segment of the leader behind messages of its own: they may be some that only a tombstone deleted,
which the leader has removed since. So it drops its log first, and each next segment must have lost the same tombstones.
Only a replica outside the set can be there, because a log is compacted below its committed end.

Used by `followers`, which decides who is answered and when; reads the store.
"""

from headrace_mq.broker.replicas.bodies import EpochStart, LogEnd, LogPart, QueueStart
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import Parted, Send
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.replication.compacted_log import SegmentPiece

__all__ = ["log_part"]


def log_part(logs: StoreLogs, log: LogEnd, said: Send | Parted, bytes_max: int) -> LogPart:
    """Returns the answer about one log.

    Args:
        logs: of the leader's open store.
        log: as the replica has it.
        said: by the rules of the group.
        bytes_max: of the log in the answer.

    Raises:
        DataCorrupt: the bytes are damaged here.
    """
    if isinstance(said, Parted):
        return LogPart(
            log.log, log.end, log.last, parted=True, found=said.found, found_end=said.found_end, lossy=said.lossy,
        )  # fmt: skip
    raw = logs.store.raw
    if log.end < raw.begin(log.log):
        return _restarted(logs, log)
    piece = raw.piece(log.log, log.end, log.identity, log.copied, bytes_max)
    if piece is not None:
        version = raw.compacted(log.log).version
        if piece.base != log.end or (log.end and log.version != version):
            return LogPart(log.log, log.end, log.last, rewound=True)
        return _copied(logs, log, piece, version)
    found = logs.read(log.log, log.end, bytes_max)
    behind = found.position + len(found.data)
    return LogPart(
        log.log, found.position, log.last, said.committed,
        first=raw.begin(log.log), base=found.base, file_bytes=found.file_bytes, data=found.data,
        starts=_starts(logs, log.log, found.position, behind),
        tombstones=logs.tombstones if log.log == COMPACT else 0, shared=said.shared,
    )  # fmt: skip


def _copied(logs: StoreLogs, log: LogEnd, piece: SegmentPiece, version: int) -> LogPart:
    """Sends the next bytes of a compacted segment."""
    return LogPart(
        log.log, piece.base, log.last,
        base=piece.base, file_bytes=piece.size,
        starts=_starts(logs, log.log, piece.base, piece.covers),
        piece=piece.data, at=piece.at, covers=piece.covers, identity=piece.identity, version=version,
    )  # fmt: skip


def _restarted(logs: StoreLogs, log: LogEnd) -> LogPart:
    """Tells a replica to begin where this log begins: what comes before was deleted."""
    raw = logs.store.raw
    first = raw.first_segment(log.log)
    return LogPart(
        log.log, first.base, log.last, restarted=True,
        first=first.base, base=first.base, file_bytes=first.file_bytes,
        starts=_starts(logs, log.log, 0, first.base),
        queues=[QueueStart(one.topic, one.queue_id, one.end) for one in raw.queue_starts(log.log)],
    )  # fmt: skip


def _starts(logs: StoreLogs, log: str, position: int, behind: int) -> list[EpochStart]:
    after = logs.by_name[log].history.after(position)
    return [EpochStart(*start) for start in after if start[1] < behind]
