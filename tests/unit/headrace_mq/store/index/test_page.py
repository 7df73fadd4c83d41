"""A page: what goes in comes out of its bytes, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.index.page import ENTRIES_MAX, IndexEntry, Page, page_bytes

# (gap before, records, bytes before, bytes, append time) of each batch.
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(1, 9), st.integers(0, 90), st.integers(113, 999),
        st.integers(-2_000, 2_000),
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


def built(batches: list[tuple[int, int, int, int, int]]) -> tuple[Page, list[IndexEntry]]:
    entries, offset, position = [], 1 << 40, 1 << 50
    for gap, records, before, length, ms in batches:
        entries.append(IndexEntry(position + before, length, offset + gap, records, 1_700 + ms))
        offset, position = offset + gap + records, position + before + length
    page = Page(entries[0].base, entries[0].position, entries[0].at_ms)
    assert all(page.add(entry) for entry in entries)
    return page, entries


@given(batches=BATCHES)
def test_bytes_tell_every_entry(batches: list[tuple[int, int, int, int, int]]) -> None:
    page, entries = built(batches)
    encoded = page.encode()
    assert len(encoded) == page_bytes(len(entries))
    read = Page.decode(encoded + b"what follows")
    assert [read.entry(number) for number in range(len(read))] == entries
    assert (read.first, read.end) == (entries[0].base, entries[-1].base + entries[-1].records)
    times = [entry.at_ms for entry in entries]
    assert (read.min_ms, read.max_ms) == (page.min_ms, page.max_ms) == (min(times), max(times))


@given(batches=BATCHES, data=st.data())
def test_a_flipped_bit_is_seen(
    batches: list[tuple[int, int, int, int, int]], data: st.DataObject
) -> None:
    encoded = bytearray(built(batches)[0].encode())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DataCorrupt):
        Page.decode(bytes(encoded))


@pytest.mark.parametrize("length", [0, 31, 32, 51])
def test_a_page_that_is_cut_off_is_refused(length: int) -> None:
    page = Page(0, 0, 0)
    page.add(IndexEntry(0, 150, 0, 1, 0))
    with pytest.raises(DataCorrupt, match="cut off"):
        Page.decode(page.encode()[:length])


@pytest.mark.parametrize(
    "entry",
    [
        IndexEntry(0, 150, 1 << 32, 1, 0),
        IndexEntry(1 << 32, 150, 1, 1, 0),
        IndexEntry(200, 150, 1, 1, 1 << 31),
        IndexEntry(200, 150, 1, 1, -(1 << 31) - 1),
    ],
)
def test_a_batch_too_far_from_the_first_one_needs_another_page(entry: IndexEntry) -> None:
    page = Page(0, 0, 0)
    assert page.add(IndexEntry(0, 150, 0, 1, 0))
    assert not page.add(entry)
    assert len(page) == 1


@given(batches=BATCHES, sizes=st.lists(st.integers(1, 9), min_size=30, max_size=30))
def test_batches_may_come_by_the_handful(
    batches: list[tuple[int, int, int, int, int]], sizes: list[int]
) -> None:
    one_by_one, entries = built(batches)
    page = Page(entries[0].base, entries[0].position, entries[0].at_ms)
    rest = entries
    for size in sizes:
        assert page.extend(rest[:size]) == len(rest[:size])
        rest = rest[size:]
    assert page.encode() == one_by_one.encode()
    assert (page.min_ms, page.max_ms) == (one_by_one.min_ms, one_by_one.max_ms)


@pytest.mark.parametrize("far", range(4))
def test_of_a_handful_those_in_front_of_one_too_far_away_are_taken(far: int) -> None:
    page = Page(0, 0, 0)
    entries = [IndexEntry(n * 200, 150, n, 1, 0) for n in range(4)]
    entries[far] = entries[far]._replace(at_ms=1 << 31)
    assert page.extend(entries) == far
    assert [page.entry(number) for number in range(len(page))] == entries[:far]


def test_a_full_page_takes_nothing() -> None:
    page = Page(0, 0, 0)
    taken = [page.add(IndexEntry(n * 200, 150, n, 1, n)) for n in range(ENTRIES_MAX + 1)]
    assert taken == [True] * ENTRIES_MAX + [False]
    fresh = Page(0, 0, 0)
    assert (
        fresh.extend([IndexEntry(n * 200, 150, n, 1, n) for n in range(ENTRIES_MAX + 9)])
        == ENTRIES_MAX
    )
    assert fresh.encode() == page.encode()


def test_the_end_below_a_position_is_behind_the_batches_that_stand_below_it() -> None:
    page = Page(10, 1_000, 0)
    page.extend([IndexEntry(1_000 + n * 200, 150, 10 + n * 3, 2, 0) for n in range(3)])
    ends = [page.end_below(at) for at in (1_001, 1_200, 1_201, 1_400, 1_401, 9_999)]
    assert ends == [12, 12, 15, 15, 18, 18]
