"""The first names have series of their own, and the sum of the others never goes down."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.metrics.names import Names


def test_a_name_keeps_its_place() -> None:
    names = Names(2)
    names.keep(["a", "b", "c"])
    names.keep(["c", "b", "a"])
    assert list(names) == ["a", "b"]
    assert "c" not in names


def test_a_name_that_is_gone_gives_its_place_to_one_that_is_new() -> None:
    names = Names(2)
    names.keep(["a", "b", "c"])
    # What `c` had is in the sum of the others already.
    names.keep(["b", "c", "d"])
    assert list(names) == ["b", "d"]
    names.keep(["d"])
    names.keep(["c", "d"])
    assert list(names) == ["d", "c"]


def test_names_that_come_and_go_are_not_kept() -> None:
    names = Names(2)
    for number in range(1_000):
        names.keep([f"{number}a", f"{number}b", f"{number}c"])
        assert list(names) == [f"{number}a", f"{number}b"]
    names.keep([])
    assert (list(names), names._shared) == ([], set())


def test_the_others_had_the_rest_of_the_total() -> None:
    names = Names(1)
    names.keep(["a"])
    assert names.others(10, {"a": 3, "b": 5}) == 7
    assert names.others(10, {}) == 10


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-1, 9)), max_size=30))
def test_the_sum_of_the_others_never_goes_down(steps: list[tuple[str, int]]) -> None:
    """A count of -1 lets a name go; what it had on its own is no longer of anyone."""
    names, own, total, before, gone = Names(2), dict[str, int](), 0, 0, 0
    for name, count in steps:
        if count < 0:
            had = own.pop(name, 0)
            gone += had if name in names else 0
        # A name is known before it counts: so it is with topics.
        names.keep(sorted({*own, name} if count >= 0 else own))
        if count >= 0:
            own[name] = own.get(name, 0) + count
            total += count
        assert names.others(total, own) - gone >= before
        before = names.others(total, own) - gone
