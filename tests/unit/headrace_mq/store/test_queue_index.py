"""Offset to position, against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.store.queue_index import QueueIndex
from headrace_mq.store.segment import Place

# (gap before, records, bytes before in the log, bytes) of each batch.
BATCHES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 50), st.integers(113, 400)),
    max_size=20,
)


def built(
    batches: list[tuple[int, int, int, int]],
) -> tuple[QueueIndex, list[tuple[int, int, Place]]]:
    index, model, offset, position = QueueIndex(), [], 0, 0
    for gap, records, before, length in batches:
        offset, position = offset + gap, position + before
        index.skip_to(offset)
        place = Place(position, length)
        index.add(offset, records, place)
        model.append((offset, records, place))
        offset, position = offset + records, position + length
    return index, model


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


@given(batches=BATCHES, offset=st.integers(0, 120), bytes_max=st.integers(0, 2_000))
def test_finding_equals_looking_through_a_list(
    batches: list[tuple[int, int, int, int]], offset: int, bytes_max: int
) -> None:
    index, model = built(batches)
    assert index.find(offset, bytes_max) == expected(model, offset, bytes_max)
    assert len(index) == len(model)
    assert index.end == index.tail == (model[-1][0] + model[-1][1] if model else 0)
    assert index.first == (model[0][0] if model else 0)


@given(batches=BATCHES, data=st.data())
def test_a_dropped_batch_leaves_a_gap_and_nothing_else(
    batches: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    index, model = built(batches)
    end = index.end
    if model:
        victim = data.draw(st.sampled_from(model))
        index.drop(victim[2].position)
        model.remove(victim)
    index.drop(1_000_000)
    assert index.end == end
    for offset in range(end + 1):
        assert index.find(offset, 1_000) == expected(model, offset, 1_000)


def test_what_is_staged_is_ahead_of_what_is_visible() -> None:
    index = QueueIndex()
    index.tail = 30
    index.add(0, 10, Place(0, 200))
    assert (index.end, index.tail) == (10, 30)


def test_offsets_never_overlap() -> None:
    index = QueueIndex()
    index.add(0, 10, Place(0, 200))
    with pytest.raises(ValueError, match="below the queue's end 10"):
        index.add(9, 1, Place(200, 200))


def test_an_empty_index_with_a_known_end_begins_there() -> None:
    index = QueueIndex()
    index.skip_to(50)
    assert (index.first, index.end, index.tail) == (50, 50, 50)
    assert index.find(50, 100) == []
