"""What a runner wrote is known to it until anybody else may have written."""

from typing import Any

from headrace.projections.written_cache import Recall

Q0, Q1 = ("t", 0), ("t", 1)


def filled(**choices: Any) -> Recall[Any]:
    recall: Recall[Any] = Recall(**choices)
    recall.expect(1, {Q0: 5})
    recall.write({Q0: 7}, {"a": 3, "b": 1}, {"a": None})
    recall.settle()
    return recall


def test_committed_rows_are_cached_at_the_offsets_of_their_batch() -> None:
    recall = filled()
    recall.expect(1, {Q0: 7})
    assert recall.versions(["a", "b", "c"]) == {"a": 3, "b": 1}
    assert recall.rows({"a", "b"}) == {"a": None}


def test_another_offset_or_generation_clears_the_cache() -> None:
    for generation, offsets in ((1, {Q0: 8}), (1, {Q0: 7, Q1: 1}), (1, {}), (2, {Q0: 7})):
        recall = filled()
        recall.expect(generation, offsets)
        assert recall.versions(["a"]) == recall.rows(["a"]) == {}
        recall.expect(1, {Q0: 7})
        assert recall.versions(["a"]) == {}


def test_a_failed_transaction_clears_the_cache() -> None:
    for stored in ({Q0: 7}, {Q0: 9}):
        recall = filled()
        recall.expect(1, {Q0: 7})
        recall.write({Q0: 9}, {"a": 4}, {})
        recall.expect(1, stored)
        assert recall.versions(["a"]) == recall.rows(["a"]) == {}
        recall.settle()
        recall.expect(1, stored)
        assert recall.versions(["a"]) == {}


def test_the_cache_keeps_a_bounded_number_of_the_last_entries_read() -> None:
    recall: Recall[Any] = Recall(kept_max=10)
    offset = 0
    recall.expect(1, {})
    for number in range(100):
        recall.expect(1, {Q0: offset} if offset else {})
        recall.versions(["often"])
        offset += 1
        recall.write({Q0: offset}, {f"a-{number}": 1} | ({"often": 1} if not number else {}), {})
        recall.settle()
    recall.expect(1, {Q0: offset})
    known = recall.versions(["often", *(f"a-{number}" for number in range(100))])
    assert {"often", "a-99"} <= known.keys()
    assert "a-0" not in known
    assert len(known) <= 22


def test_a_batch_uses_the_cache_if_it_begins_where_the_last_one_ended() -> None:
    recall = filled()
    assert recall.offsets_left(1, {Q0: 7}) == {Q0: 7}
    for generation, begin in ((2, {Q0: 7}), (1, {Q0: 8}), (1, {Q1: None}), (1, {Q0: 7, Q1: 0})):
        assert recall.offsets_left(generation, begin) is None
    assert Recall[Any]().offsets_left(1, {}) is None


def test_a_transaction_that_trusted_and_wrote_nothing_is_doubted_once_and_the_next_one_reads() -> (
    None
):
    recall = filled()
    assert not recall.doubt()
    recall.trust()
    assert recall.offsets_left(1, {Q0: 7}) is None
    assert recall.doubt()
    assert not recall.doubt()
    recall.expect(1, {Q0: 7})
    assert recall.versions(["a"]) == {}


def test_a_transaction_that_trusted_and_was_committed_is_known() -> None:
    recall = filled()
    recall.trust()
    recall.write({Q0: 9}, {"a": 4}, {})
    recall.settle()
    assert not recall.doubt()
    assert recall.offsets_left(1, {Q0: 9}) == {Q0: 9}
    assert recall.versions(["a"]) == {"a": 4}
