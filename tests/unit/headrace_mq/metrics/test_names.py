"""The first names have series of their own, and the sum of the others never goes down."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.metrics.names import Names


def test_a_name_keeps_its_place() -> None:
    names = Names(2)
    names.add(["a", "b", "c"])
    names.add(["c", "a"])
    assert list(names) == ["a", "b"]
    assert "c" not in names


def test_the_others_had_the_rest_of_the_total() -> None:
    names = Names(1)
    names.add(["a"])
    assert names.others(10, {"a": 3, "b": 5}) == 7
    assert names.others(10, {}) == 10


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=30))
def test_the_sum_of_the_others_never_goes_down(steps: list[tuple[str, int]]) -> None:
    names, own, total, before = Names(2), dict[str, int](), 0, 0
    for name, count in steps:
        # A name is known before it counts: so it is with topics.
        names.add([name])
        own[name] = own.get(name, 0) + count
        total += count
        assert names.others(total, own) >= before
        before = names.others(total, own)
