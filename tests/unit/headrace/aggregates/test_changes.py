"""Two states are compared in words."""

from headrace.aggregates.changes import CHANGES_MAX, changes_between


def sentences(before: object, after: object) -> list[str]:
    return [one.sentence for one in changes_between(before, after)]


def test_a_comparison_tells_values_that_are_new_gone_and_other() -> None:
    before = {"balance": 5, "owner": "ann", "closed": False, "limit": None}
    after = {"balance": 7, "owner": "ann", "closed": True, "note": "vip"}
    assert sentences(before, after) == [
        "balance was 5 and is 7",
        "closed was false and is true",
        "limit is gone: it was null",
        'note is new: "vip"',
    ]


def test_equal_states_have_no_differences() -> None:
    assert sentences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


def test_a_comparison_of_lists_tells_what_was_put_in_between() -> None:
    assert sentences({"seen": ["a", "c"]}, {"seen": ["a", "b", "c"]}) == ['seen.1 is new: "b"']
    assert sentences([1, 2], [1]) == ["1 is gone: it was 2"]
    assert sentences([{"n": 1}], [{"n": 2}]) == ["0.n was 1 and is 2"]


def test_a_state_of_another_kind_is_one_difference() -> None:
    assert sentences(1, True) == ["the state was 1 and is true"]
    assert sentences({"a": [1]}, {"a": {"b": 1}}) == ['a was [1] and is {"b": 1}']


def test_a_comparison_has_a_bound_and_long_values_are_cut() -> None:
    assert len(changes_between({}, {f"n{n}": n for n in range(10_000)})) == CHANGES_MAX
    assert sentences({}, {"text": "x" * 10_000})[0].endswith("…")
