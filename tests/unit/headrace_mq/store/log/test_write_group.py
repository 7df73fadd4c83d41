"""Batches that are written together, in pieces."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log import write_group as group
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.write_group import Group, NewBatch, Staged, only_batch
from headrace_mq.store.segment.segment import MARK_BYTES


def add(to: Group, batch: bytes) -> Staged:
    staged = Staged(QueueRef("orders", 0), IndexEntry(to.end, len(batch), 0, 1, 0), None)
    to.add(staged, batch)
    return staged


@pytest.fixture
def new_group(tmp_path: Path, files: Any, monkeypatch: pytest.MonkeyPatch) -> Group:
    monkeypatch.setattr(group, "BLOCK_BYTES", 100)
    monkeypatch.setattr(group, "LONE_BYTES", 50)
    return Group(CommitLog(files, tmp_path / "forever", segment_bytes=1 << 16), 1 << 16, None)


def test_small_batches_share_a_piece_and_a_large_one_is_one_by_itself(new_group: Group) -> None:
    batches = [bytes([n]) * size for n, size in enumerate([10, 20, 60, 49, 49, 49, 50, 5])]
    staged = [add(new_group, batch) for batch in batches]
    assert [len(block) for block in new_group.blocks] == [30, 60, 147, 50], "one is still open"
    new_group.close_block()
    new_group.close_block()
    assert [len(block) for block in new_group.blocks] == [30, 60, 147, 50, 5]
    assert new_group.blocks[1] is batches[2], "a large batch is not copied"
    assert new_group.staged == staged


@given(sizes=st.lists(st.integers(1, 12_000), max_size=40))
def test_the_pieces_are_the_batches_in_their_order_from_the_mark_to_the_end(
    sizes: list[int],
) -> None:
    log = CommitLog(None, Path("forever"), segment_bytes=1 << 20)  # type: ignore[arg-type]  # no file is touched
    made = Group(log, 1 << 20, None)
    batches = [bytes([n]) * size for n, size in enumerate(sizes)]
    for batch in batches:
        add(made, batch)
    made.close_block()
    assert b"".join(made.blocks) == b"".join(batches)
    assert made.end == made.start + MARK_BYTES + sum(sizes)


def test_one_batch_alone_is_at_hand_and_of_more_none_is(new_group: Group) -> None:
    batch = bytes(10)
    staged = add(new_group, batch)
    new_group.close_block()
    assert only_batch([new_group]) == NewBatch(staged.queue, staged.entry.base, batch)
    assert only_batch([new_group, new_group]) is None
    add(new_group, batch)
    new_group.close_block()
    assert only_batch([new_group]) is None
    assert only_batch([]) is None
