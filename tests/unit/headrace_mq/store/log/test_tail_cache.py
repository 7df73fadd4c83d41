"""Recent batches in bounded memory."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log import tail_cache
from headrace_mq.store.log.tail_cache import TailCache

# Between the groups of a log stands a mark.
GAP = 32

Block = list[bytes]


def entry(position: int, length: int) -> IndexEntry:
    return IndexEntry(position, length, 0, 1, 0)


def fill(cache: TailCache, groups: list[list[Block]]) -> list[list[tuple[IndexEntry, bytes]]]:
    """Puts groups of blocks of batches; returns for each block its batches and where they stand."""
    placed, position = [], 0
    for blocks in groups:
        position += GAP
        cache.put("forever", position, [b"".join(block) for block in blocks])
        for block in blocks:
            ends = [*accumulate(map(len, block), initial=position)]
            placed.append([(entry(at, len(b)), b) for at, b in zip(ends, block, strict=False)])
            position = ends[-1]
    return placed


batches = st.binary(min_size=1, max_size=20)
blocks = st.lists(batches, min_size=1, max_size=4)
groups = st.lists(st.lists(blocks, min_size=1, max_size=3), max_size=20)


@given(bytes_max=st.integers(0, 400), groups=groups, data=st.data())
def test_the_newest_blocks_that_fit_are_held_and_no_others(
    bytes_max: int, groups: list[list[Block]], data: st.DataObject
) -> None:
    # So that blocks leave the lists as often as they can.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_cache, "_LEFT_MIN", 1)
        cache = TailCache(bytes_max)
        placed = fill(cache, groups)
    room, fits, expected = bytes_max, True, []
    for block in reversed(placed):
        room -= sum(len(batch) for _, batch in block)
        fits = fits and room >= 0
        expected += [(place, batch if fits else None) for place, batch in reversed(block)]
    # A reader asks for any of them, of one queue: in the order of the log.
    wanted = [known for known in reversed(expected) if data.draw(st.booleans())]
    assert cache.find("forever", [place for place, _ in wanted]) == [batch for _, batch in wanted]
    assert cache.held_bytes == sum(len(batch or b"") for _, batch in expected)
    assert cache.held_bytes <= bytes_max


@given(groups=groups, data=st.data())
def test_what_is_forgotten_is_not_found_and_makes_no_other_leave(
    groups: list[list[Block]], data: st.DataObject
) -> None:
    size = sum(len(batch) for group in groups for block in group for batch in block)
    cache = TailCache(size)
    placed = fill(cache, groups)
    starts = [block[0][0].position for block in placed]
    start, end = data.draw(st.sampled_from([0, *starts])), data.draw(st.sampled_from([0, *starts]))
    cache.forget("forever", start, end)
    cache.forget("transient", 0, 1 << 40)
    kept = [not start <= block[0][0].position < end for block in placed]
    for block, is_kept in zip(placed, kept, strict=True):
        for place, batch in block:
            assert cache.find("forever", [place]) == [batch if is_kept else None]
    assert cache.held_bytes == sum(
        place.length for block, is_kept in zip(placed, kept, strict=True) if is_kept
        for place, _ in block
    )  # fmt: skip
    # Those that come later take the room of what was forgotten first.
    free = size - cache.held_bytes
    if free:
        cache.put("forever", 1 << 20, [b"x" * free])
    for block, is_kept in zip(placed, kept, strict=True):
        if is_kept:
            assert cache.find("forever", [block[0][0]]) == [block[0][1]]


def test_a_batch_that_is_a_block_is_not_copied() -> None:
    cache = TailCache(10_000)
    batch = b"a" * 5_000
    cache.put("forever", 32, [b"b", batch])
    (found,) = cache.find("forever", [entry(33, 5_000)])
    assert found is batch


def test_logs_are_told_apart() -> None:
    cache = TailCache(100)
    cache.put("forever", 0, [b"a"])
    cache.put("transient", 0, [b"b"])
    assert cache.find("forever", [entry(0, 1), entry(1, 1)]) == [b"a", None]
    assert cache.find("transient", [entry(0, 1), entry(1, 1)]) == [b"b", None]
    assert cache.find("neither", [entry(0, 1)]) == [None]
