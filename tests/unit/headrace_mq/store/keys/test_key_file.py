"""A key file finds what was entered, and says so when a byte of it is not what was written."""

import random
from array import array
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.batch import assign
from headrace_mq.store.keys.key_file import KeyDraft, KeyFile, digest_of
from headrace_mq.store.segment.block_file import Block
from headrace_mq.store.segment.segment import Segment, SegmentPlan

DIGESTS = st.one_of(st.integers(0, (1 << 32) - 1), st.sampled_from([0, 7, (1 << 32) - 1]))
BASE = 1 << 40


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    plan = SegmentPlan(tmp_path, "forever", base=BASE, file_bytes=8_192, epoch=1, now_ms=0)
    return KeyFile(SystemFiles(), Segment.create(SystemFiles(), plan), "forever")


def test_a_digest_depends_on_the_topic_and_on_where_it_ends() -> None:
    digests = {digest_of("a", "bc"), digest_of("ab", "c"), digest_of("a", "b"), digest_of("é", "")}
    assert len(digests) == 4


@settings(deadline=None)
@given(batches=st.lists(st.sets(DIGESTS, max_size=5), max_size=30), other=DIGESTS)
def test_a_draft_and_its_block_find_exactly_what_was_entered(
    tmp_path_factory: pytest.TempPathFactory, batches: list[set[int]], other: int
) -> None:
    expected: dict[int, list[int]] = defaultdict(list)
    draft = KeyDraft(BASE, BASE + 100)
    for number, digests in enumerate(batches):
        position = BASE + 100 + number * 50
        draft.add(position, number, digests)
        for digest in digests:
            expected[digest].append(position)
    draft.end = BASE + 2_000
    plan = SegmentPlan(
        tmp_path_factory.mktemp("keys"), "forever", base=BASE, file_bytes=8_192, epoch=1, now_ms=0
    )
    segment = Segment.create(SystemFiles(), plan)
    file = KeyFile(SystemFiles(), segment, "forever")
    block = file.append(draft.content())
    file.accept(block)
    for digest in {*expected, other}:
        assert draft.find(digest) == file.find(block, digest) == expected[digest]
    assert draft.keys == sum(map(len, batches))
    assert (block.min_ms, block.max_ms) == (0, max(0, len(batches) - 1))
    file.close()
    segment.close()


def test_no_changed_byte_of_a_block_is_taken_for_what_was_written(
    key_file: KeyFile, make_batch: Callable[..., bytearray]
) -> None:
    chance = random.Random(3)
    batch = make_batch(b"body")
    assign(batch, base_offset=0, position=BASE, appended_at_ms=0, epoch=1)
    key_file.segment.write(BASE, [bytes(batch)])
    draft = KeyDraft(BASE, BASE)
    draft.add(BASE, 0, {chance.getrandbits(32) for _ in range(300)})
    draft.end = BASE + 400
    block = key_file.append(draft.content())
    key_file.accept(block)
    good = key_file.read(0, 1 << 20)
    ((_, counts),) = _reloaded(key_file)
    assert len(set(key_file.entries(block, counts))) == 300
    for _ in range(200):
        at = chance.randrange(block.at, len(good))
        key_file.replace(at, bytes([good[at] ^ 1 << chance.randrange(8)]))
        for found in _reloaded(key_file):
            with pytest.raises(DataCorrupt):
                list(key_file.entries(*found))
        key_file.replace(0, good)


def _reloaded(file: KeyFile) -> "list[tuple[Block, array[int]]]":
    other = KeyFile(SystemFiles(), file.segment, "forever")
    found = list(other.load(1 << 60))
    other.close()
    return found


def test_a_dropped_block_takes_those_behind_it_along(key_file: KeyFile) -> None:
    blocks = []
    for start in (BASE, BASE + 10, BASE + 20):
        draft = KeyDraft(BASE, start)
        draft.end = start + 10
        blocks.append(key_file.append(draft.content()))
        key_file.accept(blocks[-1])
    assert [key_file.block_of(BASE + at) for at in (0, 9, 10, 29, 30)] == [
        blocks[0], blocks[0], blocks[1], blocks[2], None,
    ]  # fmt: skip
    key_file.drop(blocks[1], "a test")
    assert key_file.blocks == blocks[:1]
    assert key_file.end == BASE + 10
    assert key_file.next_at == blocks[1].at
    assert len(key_file.read(0, 1 << 20)) == blocks[1].at
