"""What an append changes beside bytes: offsets and sequences, and taking both back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import InvalidArgument, SequenceGap
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BATCH_RECORDS_MAX,
    BatchHeader,
    Columns,
    assign,
    encode_batch,
    read_header,
)
from headrace_mq.settings import StoreSettings
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.queues import Queues
from headrace_mq.store.log.write_group import Group, Staged
from headrace_mq.store.message_store import MessageStore

ORDERS = QueueRef("orders", 0)
MANY = 1 << 30


@pytest.fixture
def logs(tmp_path: Path, files: Any) -> dict[str, CommitLog]:
    return {
        name: CommitLog(files, tmp_path / name, segment_bytes=64 * 1024, epoch=1)
        for name in ("forever", "transient")
    }


@pytest.fixture
def queues(logs: dict[str, CommitLog]) -> Queues:
    return Queues(logs)


@pytest.fixture
def header(make_batch: Callable[..., bytearray]) -> Callable[..., BatchHeader]:
    def make(records: int = 1, offset: int = 0, **fields: int) -> BatchHeader:
        batch = make_batch(*[b"x"] * records, **fields)
        assign(batch, base_offset=offset, position=offset * 500, appended_at_ms=0, epoch=1)
        return read_header(batch)

    return make


def staged(queues: Queues, group: Group, header: BatchHeader) -> int:
    queue = queues.for_append(header.queue, group.log.name)
    assert queues.duplicate_of(header) is None
    base = queue.index.tail
    undo = queues.stage(queue, header)
    entry = IndexEntry(group.end, header.length, base, header.count, 0)
    group.staged.append(Staged(header.queue, entry, undo))
    group.end += header.length
    return base


def ends(queues: Queues) -> dict[QueueRef, tuple[int, int]]:
    return {ref: (queue.index.end, queue.index.tail) for ref, queue in queues}


def test_staged_batches_get_offsets_in_order_and_become_visible_together(
    queues: Queues, logs: dict[str, CommitLog], header: Callable[..., BatchHeader]
) -> None:
    group = Group(logs["forever"], 64_000, None)
    bases = [staged(queues, group, header(n, queue=q)) for n, q in [(3, 0), (2, 1), (4, 0)]]
    assert bases == [0, 0, 3]
    assert ends(queues) == {ORDERS: (0, 7), QueueRef("orders", 1): (0, 2)}
    assert list(queues.commit(group)) == [ORDERS, QueueRef("orders", 1)]
    assert ends(queues) == {ORDERS: (7, 7), QueueRef("orders", 1): (2, 2)}


def test_withdrawn_groups_leave_no_trace(
    queues: Queues, logs: dict[str, CommitLog], header: Callable[..., BatchHeader]
) -> None:
    kept = Group(logs["forever"], 64_000, None)
    staged(queues, kept, header(5, producer=1))
    queues.commit(kept)
    before = ends(queues)
    lost = [Group(logs["forever"], 64_000, None) for _ in range(2)]
    staged(queues, lost[0], header(5, producer=1, sequence=5))
    staged(queues, lost[0], header(1, queue=9, producer=2))
    staged(queues, lost[1], header(5, producer=1, sequence=10))
    queues.withdraw(lost[::-1])
    assert ends(queues) == before
    assert queues.get(QueueRef("orders", 9)) is None
    assert queues.duplicate_of(header(5, producer=1)) == 0
    assert queues.duplicate_of(header(5, producer=1, sequence=5)) is None
    assert queues.duplicate_of(header(1, queue=9, producer=2, sequence=77)) is None
    with pytest.raises(SequenceGap):
        queues.duplicate_of(header(5, producer=1, sequence=10))


def test_without_a_producer_id_nothing_is_a_duplicate(
    queues: Queues, logs: dict[str, CommitLog], header: Callable[..., BatchHeader]
) -> None:
    group = Group(logs["forever"], 64_000, None)
    assert [staged(queues, group, header(1)) for _ in range(3)] == [0, 1, 2]


def test_a_queue_stays_in_its_log(
    queues: Queues, logs: dict[str, CommitLog], header: Callable[..., BatchHeader]
) -> None:
    staged(queues, Group(logs["forever"], 64_000, None), header(1))
    with pytest.raises(InvalidArgument, match="retention 'forever', which cannot change"):
        queues.for_append(ORDERS, "transient")


def test_an_unknown_retention_is_a_mistake(queues: Queues) -> None:
    with pytest.raises(ValueError, match="'weekly' is unknown; use forever or transient"):
        queues.for_append(ORDERS, "weekly")


def test_asking_for_a_queue_does_not_enter_it(queues: Queues) -> None:
    queues.for_append(ORDERS, "forever")
    assert len(queues) == 0


def test_recovered_batches_may_leave_gaps_and_never_overlap(
    queues: Queues, header: Callable[..., BatchHeader]
) -> None:
    assert queues.accept("forever", header(3, offset=10)) is None
    assert queues.accept("forever", header(3, offset=20)) is None
    assert "below 23" in str(queues.accept("forever", header(3, offset=22)))
    assert "log 'forever'" in str(queues.accept("transient", header(3, offset=50)))
    assert ends(queues) == {ORDERS: (23, 23)}


def test_recovered_batches_bring_back_what_producers_sent(
    queues: Queues, header: Callable[..., BatchHeader]
) -> None:
    queues.accept("forever", header(3, offset=10, producer=7, sequence=100))
    assert queues.duplicate_of(header(3, producer=7, sequence=100)) == 10
    assert queues.duplicate_of(header(3, producer=7, sequence=103)) is None


def test_a_damaged_batch_leaves_its_offsets_unused_if_its_header_fits(
    queues: Queues, header: Callable[..., BatchHeader]
) -> None:
    queues.accept("forever", header(3, offset=0, producer=7))
    assert queues.miss("forever", header(2, offset=3, producer=7, sequence=3))
    queues.skip_missed()
    assert ends(queues) == {ORDERS: (5, 5)}
    assert queues.duplicate_of(header(1, producer=7, sequence=5)) is None


def test_the_count_of_a_damaged_batch_never_costs_the_batches_behind_it(
    queues: Queues, header: Callable[..., BatchHeader]
) -> None:
    queues.accept("forever", header(3, offset=0, producer=7))
    assert queues.miss("forever", header(2 + 4_096, offset=3, producer=7, sequence=1 << 20))
    # Unknown is what the producer sent last, so nothing of it may pass for repeated.
    assert queues.duplicate_of(header(1, producer=7, sequence=5)) is None
    assert queues.accept("forever", header(1, offset=5, producer=7, sequence=5)) is None
    queues.skip_missed()
    assert ends(queues) == {ORDERS: (6, 6)}


@pytest.mark.parametrize("why", ["log", "offset", "count", "queue"])
def test_a_damaged_batch_is_not_believed_if_its_header_does_not_fit(
    queues: Queues, header: Callable[..., BatchHeader], why: str
) -> None:
    queues.accept("forever", header(3, offset=0))
    damaged = header(2, offset=4 if why == "offset" else 3, queue=1 if why == "queue" else 0)
    if why == "count":
        damaged = damaged._replace(count=BATCH_RECORDS_MAX + 1)
    assert not queues.miss("transient" if why == "log" else "forever", damaged)
    assert ends(queues) == {ORDERS: (3, 3)}


def test_a_known_end_enters_a_queue_without_messages(queues: Queues) -> None:
    queues.skip_to(ORDERS, "forever", 40)
    queues.skip_to(ORDERS, "forever", 30)
    assert ends(queues) == {ORDERS: (40, 40)}


def test_producers_are_forgotten_at_the_limit_after_a_commit(
    logs: dict[str, CommitLog], header: Callable[..., BatchHeader]
) -> None:
    queues = Queues(logs, producers_max=1)
    group = Group(logs["forever"], 64_000, None)
    for producer in (1, 2):
        staged(queues, group, header(1, producer=producer))
    assert queues.duplicate_of(header(1, producer=1)) == 0
    queues.commit(group)
    assert queues.duplicate_of(header(1, producer=1)) is None
    assert queues.duplicate_of(header(1, producer=2)) == 1
    queues.accept("forever", header(1, offset=5, producer=3))
    queues.forget_surplus()
    assert queues.duplicate_of(header(1, producer=2)) is None


# --- in files ------------------------------------------------------------------------------------


def thousands(queue: QueueRef, count: int) -> bytearray:
    return encode_batch(queue, Columns([], [], [], [b"x" * 1_000] * count, []), born_first_ms=1)


async def opened(path: Path, *, retention: str = "forever") -> MessageStore:
    store = MessageStore(StoreSettings(directory=path, segment_bytes=64 << 10))
    store.open()
    for _ in range(20):
        for queue in (ORDERS, QueueRef("orders", 1)):
            store.append(thousands(queue, 4), retention=retention)
        await store.durable()
    return store


async def test_the_bytes_of_stretches_are_where_these_say_in_one_file_after_the_other(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    try:
        offset, paths = 0, []
        while offset < store.range(ORDERS)[1]:
            stretch = store.file_range_from(ORDERS, offset, MANY, 1_000)
            assert stretch is not None
            content = stretch.path.read_bytes()
            for entry in stretch.entries:
                at = entry.position + stretch.shift
                header = read_header(content, at)
                assert (header.queue, header.base_offset) == (ORDERS, offset)
                assert header.length == entry.length
                offset = header.next_offset
            paths.append(stretch.path)
        assert offset == 80
        # 40 batches of 4 kB do not fit into one segment of 64 KiB.
        assert len(paths) == len(set(paths)) > 1
    finally:
        await store.aclose()


async def test_a_stretch_ends_after_so_many_bytes_or_batches_and_begins_in_the_middle(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    try:
        few = store.file_range_from(ORDERS, 5, MANY, 2)
        assert few is not None
        assert [entry.base for entry in few.entries] == [4, 8]
        small = store.file_range_from(ORDERS, 0, 1, 1_000)
        assert small is not None
        assert [entry.base for entry in small.entries] == [0]
    finally:
        await store.aclose()


async def test_unknown_offsets_and_compacted_queues_have_no_stretch(tmp_path: Path) -> None:
    store = await opened(tmp_path / "plain")
    compacted = await opened(tmp_path / "compacted", retention="compact")
    try:
        assert store.file_range_from(QueueRef("orders", 7), 0, MANY, 9) is None
        assert store.file_range_from(ORDERS, 80, MANY, 9) is None
        assert compacted.range(ORDERS) == (0, 80)
        assert compacted.file_range_from(ORDERS, 0, MANY, 9) is None
    finally:
        await store.aclose()
        await compacted.aclose()
