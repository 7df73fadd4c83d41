"""A replica holds the leader's batches at the leader's positions, whatever comes between."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq.errors import DataCorrupt, OffsetOutOfRange, StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.store.replication.raw_log import RawRange, raw_groups
from headrace_mq.store.segment.segment import MARK_BYTES, decode_mark

LOG = "forever"
QUEUE = QueueRef("orders", 0)
FULL = OSError(28, "No space left on device")

Make = Callable[..., Any]


async def test_a_replica_holds_the_same_batches_in_the_same_segments(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    for number in range(30):
        await leader.append(
            make_batch(bytes([number]) * 7_000, queue=number % 3, producer=number + 1)
        )
    await replica.pull(leader)
    assert replica.batches() == leader.batches()
    assert replica.store.raw.ends() == leader.store.raw.ends()
    bases = [[info.base for info in copy.store.segments(LOG)] for copy in (leader, replica)]
    assert bases[0] == bases[1]
    assert len(bases[0]) > 2
    assert replica.bodies(QUEUE) == leader.bodies(QUEUE)


async def test_a_replica_goes_on_after_a_restart_and_knows_the_producers(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(b"one", producer=7))
    await replica.pull(leader)
    await replica.store.aclose()
    replica.open(epoch=2)
    await leader.append(make_batch(b"two", producer=7, sequence=1))
    await replica.pull(leader)
    assert replica.bodies(QUEUE) == [b"one", b"two"]
    assert replica.store.append(make_batch(b"two", producer=7, sequence=1), retention=LOG).duplicate


async def test_followed_batches_are_hidden_until_the_leader_committed_them(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(b"one"))
    await replica.pull(leader, commit=False)
    assert replica.store.range(QUEUE) == (0, 0)
    replica.gate.reached(LOG, leader.end())
    assert replica.bodies(QUEUE) == [b"one"]


async def test_the_marks_of_a_replica_say_how_far_its_own_disk_is(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    ends = [0] + [await leader.append(make_batch(bytes(100))) for _ in range(3)]
    await replica.take(leader.store.raw.read(LOG, 0, 1 << 20))
    data = replica.store.raw.read(LOG, 0, 1 << 20).data
    assert [decode_mark(data, end).synced for end in ends[:3]] == ends[:3]


async def test_a_range_holds_whole_groups_and_at_least_one(
    new_copy: Make, make_batch: Make
) -> None:
    leader = new_copy("a")
    first = await leader.append(make_batch(bytes(5_000)))
    second = await leader.append(make_batch(bytes(100)))
    raw = leader.store.raw
    assert len(raw.read(LOG, 0, 10).data) in {first, second}
    assert len(raw.read(LOG, 0, second - 1).data) == first
    assert len(raw.read(LOG, 0, second).data) == second
    assert raw.read(LOG, second, 10) == RawRange(LOG, second, 0, 0, b"")
    assert raw.read("transient", 0, 10).data == b""


async def test_a_replica_that_has_a_part_of_a_group_goes_on_inside_it(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    for number in range(3):
        leader.store.append(make_batch(bytes([number]) * 500), retention=LOG)
    await leader.append(make_batch(b"last"))
    whole = leader.store.raw.read(LOG, 0, 1 << 20)
    ((marked, batches),) = raw_groups(whole.data, 0)
    assert marked
    part = MARK_BYTES + batches[0][0].length
    await replica.take(whole._replace(data=whole.data[:part]))
    await replica.pull(leader)
    assert replica.batches() == leader.batches()
    await replica.store.aclose()
    replica.open()
    assert replica.batches() == leader.batches()
    assert replica.store.damage == []


async def test_no_flipped_bit_gets_into_a_replica(new_copy: Make, make_batch: Make) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(b"one", b"two"))
    raw = leader.store.raw.read(LOG, 0, 1 << 20)
    for at in range(len(raw.data)):
        bad = bytearray(raw.data)
        bad[at] ^= 1
        with pytest.raises(DataCorrupt):
            replica.store.raw.append(raw._replace(data=bytes(bad)))
    assert replica.end() == 0
    await replica.pull(leader)
    assert replica.bodies(QUEUE) == [b"one", b"two"]


async def test_a_range_of_another_place_is_refused(new_copy: Make, make_batch: Make) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    end = await leader.append(make_batch(b"one"))
    await leader.append(make_batch(b"two"))
    with pytest.raises(ValueError, match="goes on at 0"):
        replica.store.raw.append(leader.store.raw.read(LOG, end, 1 << 20))
    raw = leader.store.raw.read(LOG, end, 1 << 20)
    with pytest.raises(DataCorrupt, match="another place"):
        replica.store.raw.append(raw._replace(position=0, base=0))
    await replica.pull(leader)
    with pytest.raises(DataCorrupt, match="not the one of this replica"):
        replica.store.raw.append(raw._replace(position=replica.end(), base=5, data=b""))


async def test_a_batch_that_contradicts_the_replica_is_refused_as_a_whole(
    new_copy: Make, make_batch: Make
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(bytes(10), topic="others"))
    # Equally long, so that the next batches stand at the same position.
    end = await replica.append(make_batch(bytes(10)))
    await leader.append(make_batch(b"two", topic="others"))
    await leader.append(make_batch(b"one"))
    other = new_copy("c")
    await other.append(make_batch(b"one"), log="transient")
    raw = leader.store.raw
    with pytest.raises(DataCorrupt, match="offsets below 1"):
        replica.store.raw.append(raw.read(LOG, end, 1 << 20))
    with pytest.raises(DataCorrupt, match="contradicts this one"):
        replica.store.raw.append(other.store.raw.read("transient", 0, 1 << 20))
    assert replica.end() == end
    assert replica.store.range(QueueRef("others", 0)) == (0, 0)


async def test_a_full_disk_leaves_no_trace_and_a_broken_one_ends_it(
    new_copy: Make, make_batch: Make, files: Any
) -> None:
    leader, replica = new_copy("a"), new_copy("b", files=files)
    await leader.append(make_batch(b"one"))
    raw = leader.store.raw.read(LOG, 0, 1 << 20)
    files.write_error = FULL
    replica.store.raw.append(raw)
    with pytest.raises(StoreFull):
        await replica.store.durable()
    files.write_error = None
    await replica.pull(leader)
    assert replica.bodies(QUEUE) == [b"one"]
    await leader.append(make_batch(b"two"))
    files.sync_error = OSError(5, "Input/output error")
    raw = leader.store.raw.read(LOG, replica.end(), 1 << 20)
    replica.store.raw.append(raw)
    with pytest.raises(StoreReadOnly):
        await replica.store.durable()
    with pytest.raises(StoreReadOnly):
        replica.store.raw.append(raw)


async def test_a_replica_takes_no_more_than_its_disk_keeps_up_with(
    new_copy: Make, make_batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(bytes(2_000)))
    monkeypatch.setattr("headrace_mq.store.replication.raw_log.STAGED_BYTES_MAX", 1_000)
    with pytest.raises(StoreFull, match="wait for the disk"):
        replica.store.raw.append(leader.store.raw.read(LOG, 0, 1 << 20))


async def test_deleted_bytes_must_be_copied_as_segments(new_copy: Make, make_batch: Make) -> None:
    leader = new_copy("a")
    for _ in range(4):
        await leader.append(make_batch(bytes(30_000)))
    assert leader.store.delete_segments(LOG, leader.end()) > 0
    with pytest.raises(OffsetOutOfRange, match="was deleted below"):
        leader.store.raw.read(LOG, 0, 100)


async def test_queues_that_skipped_offsets_are_followed(new_copy: Make, make_batch: Make) -> None:
    leader, replica = new_copy("a"), new_copy("b")
    await leader.append(make_batch(b"one"))
    # As after a damaged batch: the leader's next offset is not the one behind the last batch.
    leader.store._queues.skip_to(QUEUE, LOG, 10)
    await leader.append(make_batch(b"two"))
    await replica.pull(leader)
    assert replica.store.range(QUEUE) == (0, 11)
    assert replica.bodies(QUEUE) == [b"one", b"two"]
