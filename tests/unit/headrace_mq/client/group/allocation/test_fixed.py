from headrace_mq.client.group.allocation.fixed import fixed
from headrace_mq.message import QueueRef

A, B, C = (QueueRef("t", number) for number in range(3))


def test_a_member_gets_what_was_chosen_of_the_topic_whoever_else_is_there() -> None:
    strategy = fixed([C, A, QueueRef("other", 0)])
    assert strategy("m", ["m"], [A, B, C]) == [A, C]
    assert strategy("m", ["a", "m"], [A, B, C]) == [A, C]
    assert strategy("m", ["m"], [B]) == []
