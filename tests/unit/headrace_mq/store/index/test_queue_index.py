"""Offset to position, against a plain list."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.store.index.page import IndexEntry, Page
from headrace_mq.store.index.queue_index import PageRef, PageSummary, QueueIndex
from headrace_mq.store.segment.segment import Place

# (gap before, records, bytes before in the log, bytes) of each batch.
BATCHES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 50), st.integers(113, 400)),
    max_size=20,
)


class Kept:
    """Pages as a file would keep them: their bytes, by their place."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []

    def page(self, ref: PageRef) -> Page | None:
        return Page.decode(self.pages[ref.at])

    def write(self, index: QueueIndex, segment: int = 0) -> None:
        """Moves everything that the index holds in memory into rows."""
        rows = []
        pages = index.freeze()
        for page in pages:
            rows.append(PageSummary(page.first, page.max_ms, len(self.pages), len(page)))
            self.pages.append(page.encode())
        index.publish(segment, pages, rows)


def built(
    batches: list[tuple[int, int, int, int]],
    written: int = 0,
) -> tuple[QueueIndex, list[tuple[int, int, Place]]]:
    kept = Kept()
    index, model, offset, position = QueueIndex(None, kept), [], 0, 0
    for number, (gap, records, before, length) in enumerate(batches):
        if written and number % written == 0:
            kept.write(index)
        offset, position = offset + gap, position + before
        index.skip_to(offset)
        place = Place(position, length)
        index.add(IndexEntry(*place, offset, records, 0))
        model.append((offset, records, place))
        offset, position = offset + records, position + length
    return index, model


def places(index: QueueIndex, offset: int, bytes_max: int) -> list[Place]:
    return [entry.place for entry in index.find(offset, bytes_max)]


def expected(model: list[tuple[int, int, Place]], offset: int, bytes_max: int) -> list[Place]:
    found: list[Place] = []
    size = 0
    for base, records, place in model:
        if base + records <= offset:
            continue
        size += place.length
        if found and size > bytes_max:
            break
        found.append(place)
    return found


@given(
    batches=BATCHES,
    offset=st.integers(0, 120),
    bytes_max=st.integers(0, 2_000),
    written=st.integers(0, 7),
)
def test_finding_equals_looking_through_a_list(
    batches: list[tuple[int, int, int, int]], offset: int, bytes_max: int, written: int
) -> None:
    index, model = built(batches, written)
    found = expected(model, offset, bytes_max)
    assert places(index, offset, bytes_max) == found
    for batches_max in (0, 1, 3):
        few = index.find(offset, bytes_max, batches_max)
        assert [entry.place for entry in few] == found[:batches_max]
    assert index.end == index.tail == (model[-1][0] + model[-1][1] if model else 0)
    assert index.first == (model[0][0] if model else 0)


def test_finding_a_few_batches_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = built([(0, 1, 0, 200)] * 100, written=10)
    looked: list[IndexEntry] = []
    all_from = QueueIndex._entries_from

    def entries_from(self: QueueIndex, offset: int) -> Iterator[IndexEntry]:
        for entry in all_from(self, offset):
            looked.append(entry)
            yield entry

    monkeypatch.setattr(QueueIndex, "_entries_from", entries_from)
    assert len(index.find(5, 1 << 30, 7)) == 7
    assert len(looked) == 7


@given(times=st.lists(st.integers(-5, 5), max_size=30), written=st.integers(0, 7))
def test_the_first_offset_since_a_time_equals_looking_through_a_list(
    times: list[int], written: int
) -> None:
    kept = Kept()
    index = QueueIndex(None, kept)
    for number, ms in enumerate(times):
        if written and number % written == 0:
            kept.write(index)
        index.add(IndexEntry(number * 200, 150, number * 2, 2, ms))
    for ms in range(-6, 7):
        later = [number * 2 for number, at_ms in enumerate(times) if at_ms >= ms]
        assert index.since(ms) == (later[0] if later else index.end)


@given(
    times=st.lists(st.integers(-5, 5), max_size=30),
    written=st.integers(0, 7),
    kept_from=st.integers(0, 4),
)
def test_deleted_segments_take_their_batches_and_times_with_them(
    times: list[int], written: int, kept_from: int
) -> None:
    kept = Kept()
    index = QueueIndex(None, kept)
    # Segments of ten batches each.
    for number, ms in enumerate(times):
        if number % 10 == 0:
            kept.write(index, (number // 10 - 1) * 2_000)
        index.add(IndexEntry(number * 200, 150, number * 2, 2, ms))
    index.delete_below(kept_from * 2_000)
    held = [(n * 2, ms) for n, ms in enumerate(times) if n >= kept_from * 10]
    assert index.first == (held[0][0] if held else index.end)
    assert index.end == len(times) * 2
    assert [entry.base for entry in index.find(0, 1 << 30)] == [base for base, _ in held]
    for ms in range(-6, 7):
        later = [base for base, at_ms in held if at_ms >= ms]
        assert index.since(ms) == (later[0] if later else index.end)


@given(batches=BATCHES, data=st.data(), written=st.integers(0, 7))
def test_a_dropped_batch_leaves_a_gap_and_nothing_else(
    batches: list[tuple[int, int, int, int]], data: st.DataObject, written: int
) -> None:
    index, model = built(batches, written)
    end = index.end
    if model:
        victim = data.draw(st.sampled_from(model))
        index.drop(victim[2].position)
        model.remove(victim)
    index.drop(1_000_000)
    assert index.end == end
    for offset in range(end + 1):
        assert places(index, offset, 1_000) == expected(model, offset, 1_000)


def test_staged_offsets_are_ahead_of_visible_ones() -> None:
    index = QueueIndex()
    index.tail = 30
    index.add(IndexEntry(0, 200, 0, 10, 0))
    assert (index.end, index.tail) == (10, 30)


def test_offsets_never_overlap() -> None:
    index = QueueIndex()
    index.add(IndexEntry(0, 200, 0, 10, 0))
    with pytest.raises(ValueError, match="below the queue's end 10"):
        index.add(IndexEntry(200, 200, 9, 1, 0))


def test_an_empty_index_with_a_known_end_begins_there() -> None:
    index = QueueIndex()
    index.skip_to(50)
    assert (index.first, index.end, index.tail) == (50, 50, 50)
    assert index.find(50, 100) == []


@given(batches=BATCHES, written=st.integers(0, 7), per_segment=st.integers(1, 5))
def test_the_end_below_a_position_equals_looking_through_a_list(
    batches: list[tuple[int, int, int, int]], written: int, per_segment: int
) -> None:
    kept = Kept()
    index, model, offset, position, segment = QueueIndex(None, kept), [], 0, 0, 0
    for number, (gap, records, before, length) in enumerate(batches):
        if written and number % written == 0:
            kept.write(index, segment)
            if number % per_segment == 0:
                segment = position
        offset, position = offset + gap, position + before
        index.add(IndexEntry(position, length, offset, records, 0))
        model.append((position, offset + records))
        offset, position = offset + records, position + length
    for at in range(0, position + 2, 7):
        below = [end for place, end in model if place < at]
        assert index.end_below(at) == (below[-1] if below else None)


def test_the_end_below_a_position_is_lower_where_a_page_cannot_be_read() -> None:
    kept = Kept()
    index = QueueIndex(None, kept)
    for number in range(6):
        index.add(IndexEntry(number * 200, 150, number, 1, 0))
        if number % 2:
            kept.write(index, segment=400 if number > 1 else 0)
    assert [index.end_below(at) for at in (0, 1, 600, 900, 10_000)] == [None, 1, 3, 5, 6]
    kept.page = lambda _ref: None  # type: ignore[method-assign]  # none of its pages can be read
    assert [index.end_below(at) for at in (0, 1, 600, 900, 10_000)] == [None, None, 0, 0, 0]
    index.add(IndexEntry(1_200, 150, 6, 1, 0))
    assert index.end_below(1_201) == 7
