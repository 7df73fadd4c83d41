"""Which aggregates are held, and by what."""

from headrace.commands.holds import Hold, Holds


def test_an_aggregate_is_held_with_its_newest_reason_until_it_is_released():
    holds = Holds(enabled=True)
    first = Hold(command_id="1", error="ValueError", sentence="broken")
    second = Hold(command_id="1", error="KeyError", sentence="broken otherwise")
    for aggregate_id, hold in (("a", first), ("b", first), ("b", second)):
        holds.hold(aggregate_id, hold)
    assert [holds.find(name) for name in "abc"] == [first, second, None]
    holds.release("a")
    holds.release("c")
    assert [holds.find(name) for name in "abc"] == [None, second, None]
    holds.clear()
    assert holds.find("b") is None


def test_where_it_is_not_the_policy_nobody_is_held():
    holds = Holds(enabled=False)
    holds.hold("a", Hold(command_id="1", error="ValueError", sentence="broken"))
    assert holds.find("a") is None
