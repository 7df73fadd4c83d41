"""What a leader answers depends on where a replica's log ends."""

from typing import Any

import pytest

from headrace_mq.broker.replicas.bodies import LogEnd, LogPart
from headrace_mq.broker.replicas.log_parts import log_part
from headrace_mq.cluster.frames import Parted, Send
from headrace_mq.store.log.commit_log import COMPACT

MOST = 1 << 20


@pytest.fixture
async def leader(places: list[Any], record: Any) -> Any:
    """A leader whose compacted log has compacted segments, and one that is as it was written."""
    a = places[0]
    followers = await a.lead(record)
    await a.put(*"abcabcabc")
    followers.commit()
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    assert await a.compact(followers.bounds(1_000))
    return a


def answered(leader: Any, end: int, *, version: int = 0) -> LogPart:
    log = LogEnd(COMPACT, end, 2 if end else 0, -1, version=version)
    return log_part(leader.logs, log, Send(2, COMPACT, end, 77), MOST)


def test_an_empty_log_gets_the_first_segment_as_a_file(leader: Any) -> None:
    part = answered(leader, 0)
    first, second = leader.logs.store.segments(COMPACT)[:2]
    assert (part.position, part.at, part.covers) == (0, 0, second.base)
    assert part.file_bytes == len(part.piece) == first.bytes
    assert [(one.epoch, one.position) for one in part.starts] == [(2, 0)]
    assert part.version == 1
    assert not part.data


def test_a_log_that_lost_the_same_tombstones_gets_the_next_segment(leader: Any) -> None:
    second = leader.logs.store.segments(COMPACT)[1]
    assert second.compacted is not None
    assert answered(leader, second.base, version=1).piece
    # Of a replica that was there before, or whose segments have lost others, it is not known.
    for version in (0, 2):
        part = answered(leader, second.base, version=version)
        assert part.rewound
        assert not part.piece


def test_a_log_that_ends_inside_a_compacted_segment_is_dropped(leader: Any) -> None:
    assert answered(leader, 40, version=1).rewound


def test_a_segment_that_is_not_compacted_comes_as_it_was_written(leader: Any) -> None:
    last = leader.logs.store.segments(COMPACT)[-1]
    assert last.compacted is None
    leader.logs.tombstones = 5
    part = answered(leader, last.base)
    assert part.data
    assert (part.committed, part.base, part.tombstones) == (77, last.base, 5)
    assert not answered(leader, leader.logs.ends()[COMPACT]).data
    forever = log_part(leader.logs, LogEnd("forever", 0, 0, -1), Send(2, "forever", 0, 0), MOST)
    assert forever == LogPart("forever", 0)


def test_a_leader_says_where_logs_part(leader: Any) -> None:
    log = LogEnd(COMPACT, 300, 9, -1)
    part = log_part(leader.logs, log, Parted(2, COMPACT, 300, 9, 2, 200), MOST)
    assert (part.parted, part.position, part.last, part.found, part.found_end) == (
        True, 300, 9, 2, 200,
    )  # fmt: skip
