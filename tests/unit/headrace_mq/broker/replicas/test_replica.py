"""A replica has the leader's bytes, cuts what the leader never had, and forgets what the leader deleted."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.replicas.repairs.repairs import RepairFigures
from headrace_mq.cluster.operations import promotion
from headrace_mq.cluster.record import ACK_LEADER, Proposal, Registration
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import DataCorrupt, MessageQueueError, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.replication.lost_messages import LostQueue, lost_files, lost_queues
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint
from tests.unit.headrace_mq.broker.replicas.conftest import Place

QUEUE = QueueRef("orders", 0)


async def copy(followers: Any, place: Any, record: Any) -> None:
    place.member.on_record(await record.read())
    for _ in range(40):
        await place.step(followers)


async def test_a_replica_has_what_the_leader_has(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    a.append(*range(20))
    await a.until(lambda: a.logs.ends()["forever"] > 60_000)
    topics = a.settings.directory / "metadata" / "topics.json"
    topics.parent.mkdir(exist_ok=True)
    write_checkpoint(a.replica._files, topics, b"topics")
    followers.on_renamed(topics)
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.end() == a.end()
    own = b.settings.directory / "metadata" / "topics.json"
    assert read_checkpoint(b.replica._files, own) == b"topics"
    assert b.logs.by_name["forever"].history == a.logs.by_name["forever"].history


async def test_a_replica_cuts_what_only_it_has(places: list[Any]) -> None:
    a, b = places
    record = MemoryRecord()
    await record.create(a.me, [a.me, b.me])
    alone = await a.lead(record)
    a.append(1, 2, 3)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    alone.close()
    followers = await b.lead(record)
    b.append(9)
    await b.until(lambda: b.logs.ends()["forever"] > 0)
    await a.replica.aclose()
    a.replica.open()
    await copy(followers, a, record)
    assert a.logs.ends() == b.logs.ends()
    assert b.end() == 1
    await a.replica.aclose()
    a.replica.open()
    assert a.end() == 1


async def test_a_replica_deletes_what_the_leader_deleted(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    await copy(followers, b, record)
    for number in range(40):
        a.append(number)
        end = a.logs.ends()["forever"]
        await a.until(lambda end=end: a.logs.ends()["forever"] > end)
    followers.commit()
    await copy(followers, b, record)
    deleted = a.logs.store.delete_segments("forever", a.logs.ends()["forever"])
    assert deleted
    await copy(followers, b, record)
    assert [one.base for one in b.logs.store.segments("forever")] == [
        one.base for one in a.logs.store.segments("forever")
    ]


async def deleted(a: Any, followers: Any, first: int = 0) -> int:
    """Lets a leader write over several segments and delete the oldest; returns where its log begins."""
    for number in range(first, 40):
        a.append(number)
        end = a.logs.ends()["forever"]
        await a.until(lambda end=end: a.logs.ends()["forever"] > end)
    followers.commit()
    assert a.logs.store.delete_segments("forever", a.logs.ends()["forever"])
    begin: int = a.logs.store.segments("forever")[0].base
    return begin


async def test_a_replica_begins_where_the_leader_deleted_what_comes_before(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    begin = await deleted(a, followers)
    assert begin > 0
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.logs.store.range(QUEUE) == a.logs.store.range(QUEUE)
    assert b.logs.by_name["forever"].history == a.logs.by_name["forever"].history
    assert [one.base for one in b.logs.store.segments("forever")] == [
        one.base for one in a.logs.store.segments("forever")
    ]
    # So it stands after a start, too.
    await b.replica.aclose()
    b.replica.open()
    assert b.logs.ends() == a.logs.ends()
    assert b.logs.store.damage == []
    assert b.logs.store.segments("forever")[0].base == begin


async def test_a_replica_that_fell_behind_drops_its_log_and_goes_on(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    a.append(0)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await copy(followers, b, record)
    assert 0 < b.logs.ends()["forever"] == a.logs.ends()["forever"]
    await deleted(a, followers, first=1)
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.logs.store.range(QUEUE) == a.logs.store.range(QUEUE)
    # Enough to enter the set: it has all that the leader has.
    assert followers.leadership.entrants() == [b.me]


async def test_a_queue_without_messages_goes_on_at_its_offset(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    other = QueueRef("rare", 0)
    batch = encode_batch(
        other, Columns([], [], [], [b"only"], []), born_first_ms=0, producer_id=8, first_sequence=0
    )
    a.logs.store.append(batch, retention="forever")
    await deleted(a, followers)
    assert a.logs.store.range(other) == (1, 1)
    await copy(followers, b, record)
    assert b.logs.store.range(other) == (1, 1)


async def test_an_old_answer_changes_nothing(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    b.member.on_record(await record.read())
    answer = await b.step(followers)
    await b.replica.take(b.member, answer)
    await b.replica.take(b.member, type(answer)(answer.epoch - 1))
    assert b.member.epoch == answer.epoch


async def test_a_replica_with_a_full_disk_says_so_and_goes_on_when_there_is_room(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    await copy(followers, b, record)
    a.append(0)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await copy(followers, b, record)
    full, write = OSError(28, "No space left on device"), b.replica._files.write

    def refuse(*_: Any) -> int:
        raise full

    b.replica._files.write = refuse
    end = a.logs.ends()["forever"]
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > end)
    with pytest.raises(StoreFull, match="replica is full"):
        await b.step(followers)
    assert b.logs.ends()["forever"] == end
    b.replica._files.write = write
    # What is known of the disk is of the last attempt.
    with suppress(StoreFull):
        await b.step(followers)
    await b.step(followers)
    assert b.logs.ends() == a.logs.ends()


async def compacted(a: Any, followers: Any, *keys: str) -> None:
    """Lets a leader write and compact several segments."""
    await a.put(*keys)
    followers.commit()
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    assert await a.compact(followers.bounds(1_000))


async def test_an_empty_replica_copies_compacted_segments_and_follows_behind_them(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    await compacted(a, followers, *"abcabcabc")
    await a.put("d")
    followers.commit()
    assert a.logs.store.raw.compacted(COMPACT).clean > 0
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.state() == a.state()
    assert b.logs.store.raw.compacted(COMPACT) == a.logs.store.raw.compacted(COMPACT)
    assert b.logs.by_name[COMPACT].history == a.logs.by_name[COMPACT].history
    assert followers.progress.entrants() == [b.me]
    # So it stands after a start, too.
    await b.replica.aclose()
    b.replica.open()
    assert b.state() == a.state()
    assert b.logs.store.damage == []


async def test_a_replica_that_ends_in_what_is_compacted_drops_its_log_and_copies_it_whole(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    await a.put(*"aab")
    followers.commit()
    await copy(followers, b, record)
    assert 0 < b.logs.ends()[COMPACT] == a.logs.ends()[COMPACT]
    await compacted(a, followers, *"abcabcabc")
    await copy(followers, b, record)
    assert b.logs.ends() == a.logs.ends()
    assert b.state() == a.state()


async def test_a_replica_in_sync_drops_nothing(places: list[Any], record: Any) -> None:
    a, b = places
    followers = await a.lead(record)
    await a.put(*"aab")
    followers.commit()
    await copy(followers, b, record)
    end = b.logs.ends()[COMPACT]
    await compacted(a, followers, *"abcabcabc")
    b.member.seen = b.member.seen._replace(in_sync=frozenset({a.me, b.me}))
    with pytest.raises(MessageQueueError, match="counts as one in sync"):
        await b.step(followers)
    assert b.logs.ends()[COMPACT] == end


@pytest.mark.parametrize("lost_at", ["leader", "replica"])
async def test_a_replica_with_damage_in_what_its_leader_compacted_leaves_the_set_and_copies_it_again(
    places: list[Any], record: Any, lost_at: str
) -> None:
    """It would stay damaged without end, and lack these messages once it leads."""
    a, b = places
    followers = await a.lead(record)
    b.replica._compact_at_ms = 1 << 60
    await a.put(*"abcabcabc")
    followers.commit()
    await copy(followers, b, record)
    b.member.seen = b.member.seen._replace(in_sync=frozenset({a.me, b.me}))
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    if lost_at == "leader":
        assert await a.compact(followers.bounds(1_000))
    name = b.logs.store.segments(COMPACT)[0].name
    rot(Path(b.settings.directory, COMPACT, name), 20_000)
    b.logs.repairs.suspect(COMPACT, 0, 1 << 20)
    assert b.logs.repairs.figures.waiting == 1
    before = b.logs.ends()[COMPACT]
    await b.step(followers)
    if lost_at == "replica":
        # The leader has these bytes: nothing is copied whole.
        assert b.logs.repairs.figures == RepairFigures(1, 0, 0)
        assert not b.replica.is_held_off
        return
    for _ in range(2):
        counted = {one.log: one.counted for one in b.replica.report(b.member).logs}
        assert counted == {COMPACT: -1, "forever": 0, "transient": 0}
        assert b.replica.is_held_off, "it asks seldom meanwhile"
        assert b.logs.ends()[COMPACT] == before, "it drops nothing while it is in the set"
        await b.step(followers)
    # The leader has taken it out.
    b.member.seen = await record.read()
    await copy(followers, b, record)
    assert not b.replica.is_held_off
    assert b.state() == a.state()
    assert b.logs.repairs.figures.waiting == 0
    assert b.logs.store.damage == []
    assert followers.progress.entrants() == [b.me]


async def test_a_replica_compacts_its_own_copy_of_what_is_committed(
    places: list[Any], record: Any
) -> None:
    a, b = places
    followers = await a.lead(record)
    await a.put(*"abcabcabc")
    # The leader has not said yet that anything is committed.
    b.member.on_record(await record.read())
    b.replica._compact_at_ms = 1 << 60
    await b.step(followers)
    assert not await b.compact(Bounds(b.member.readable(COMPACT), 0))
    followers.commit()
    await copy(followers, b, record)
    await b.until(lambda: all(one.indexed for one in b.sealed()))
    b.replica._compact_at_ms = 0
    await b.step(followers)
    await b.until(b.replica._compacting.done)
    assert b.logs.store.compaction.figures.runs == 1
    assert b.logs.store.raw.compacted(COMPACT).clean > 0
    assert a.logs.store.raw.compacted(COMPACT).clean == 0
    assert {offset for offset, _ in b.state()} < {offset for offset, _ in a.state()}
    assert b.state()[-3:] == a.state()[-3:]
    assert b.logs.ends() == a.logs.ends()


async def test_a_replica_whose_leader_lost_what_is_compacted_here_copies_the_log_whole(
    places: list[Any],
) -> None:
    a, b = places
    record = MemoryRecord()
    await record.create(a.me, [a.me, b.me])
    followers = await a.lead(record)
    await compacted_alone(a, followers)
    # As after a promotion with loss: the new leader has none of it.
    followers.close()
    others = await b.lead(record)
    await b.put("z")
    await a.replica.aclose()
    a.replica.open()
    with pytest.raises(DataCorrupt, match="committed up to"):
        await copy(others, a, record)
    a.member._committed = dict.fromkeys(a.member._committed, 0)
    await copy(others, a, record)
    assert a.state() == b.state() == [(0, "z")]


async def compacted_alone(a: Any, followers: Any) -> None:
    """Lets a leader commit and compact without its replica, against the rules."""
    await a.put(*"abcabcabc")
    end = a.logs.ends()[COMPACT]
    followers.gate.reached(COMPACT, end)
    a.member._committed[COMPACT] = end
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    assert await a.compact(Bounds(end, 0))


def rot(path: Path, at: int) -> None:
    """Changes a byte of a file."""
    rotten = bytearray(path.read_bytes())
    rotten[at] ^= 0x55
    path.write_bytes(rotten)


async def test_a_replica_holds_off_a_segment_that_is_damaged_at_its_leader_and_says_so(
    places: list[Any], record: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = places
    followers = await a.lead(record)
    await a.put(*"abacadae")
    followers.commit()
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    assert await a.compact(followers.bounds(1_000))
    name = next(one.name for one in a.logs.store.segments(COMPACT) if one.compacted)
    rot(Path(a.settings.directory, COMPACT, name), 20_000)
    b.member.on_record(await record.read())
    trouble = ""
    for _ in range(20):
        try:
            await b.step(followers)
        except DataCorrupt as error:
            trouble = str(error)
            break
    assert "cannot be used" in trouble
    assert b.replica.is_held_off
    answer = await b.step(followers)
    assert not any(part.piece for part in answer.logs), "it does not come again and again"
    assert "a replica got a compacted segment of this broker damaged" in caplog.text
    a.append(1)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    await b.step(followers)
    assert b.logs.ends()["forever"] == a.logs.ends()["forever"], "its other logs follow"


async def test_a_replica_keeps_what_it_cuts_where_a_broker_led_without_it(
    places: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = places
    record = MemoryRecord()
    await record.create(a.me, [a.me])
    alone = await a.lead(record)
    a.append(1, 2, 3)
    await a.until(lambda: a.logs.ends()["forever"] > 0)
    alone.close()
    found = await record.read()
    await record.propose(promotion(found, [Registration(b.me, (), 0)], "b"))
    followers = await b.lead(record)
    b.append(9)
    await b.until(lambda: b.logs.ends()["forever"] > 0)
    await a.replica.aclose()
    a.replica.open()
    await copy(followers, a, record)
    assert a.logs.ends() == b.logs.ends()
    directory = a.settings.directory
    (kept,) = lost_files(SystemFiles(), directory)
    (queue,) = lost_queues(directory, kept.name)
    assert queue == LostQueue(QUEUE, 3, 0, 2)
    assert kept.name in caplog.text
    assert "messages were lost" in caplog.text


async def test_a_leader_alone_does_not_serve_before_a_replica_has_cut_its_log(
    tmp_path: Path,
) -> None:
    a, b, c = group = [Place(tmp_path, name) for name in "abc"]
    record = MemoryRecord()
    made = await record.create(a.me, [one.me for one in group])
    await record.propose(Proposal(made.version, *made[1:5], ack=ACK_LEADER))
    first = await a.lead(record)
    for replica in (b, c):
        replica.member.on_record(await record.read())
        for _ in range(4):
            await replica.step(first)
    # The leader acknowledges four messages alone; one replica has all of them, the other one none.
    for number in range(4):
        end = a.logs.ends()["forever"]
        a.append(number)
        await a.until(lambda end=end: a.logs.ends()["forever"] > end)
    for _ in range(6):
        await c.step(first)
    assert (a.end(), c.logs.ends()["forever"]) == (4, a.logs.ends()["forever"])
    # The other one is elected. The first one has not read that record, so it does not know that it may cut its log.
    second = await b.lead(record)
    assert a.me not in b.member.seen.in_sync
    for _ in range(4):
        await c.step(second)
    assert (c.replica.is_held_off, second.leadership.serves) == (True, False)
    c.member.on_record(await record.read())
    for _ in range(4):
        await c.step(second)
    assert (c.logs.ends()["forever"], second.leadership.serves) == (0, True)
    for place in group:
        await place.replica.aclose()
