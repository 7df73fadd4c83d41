import pytest

from headrace_mq.client.group.allocation.strategy import place_of
from headrace_mq.message import QueueRef

Q = QueueRef("t", 0)


def test_a_members_place_is_its_number_among_all() -> None:
    assert place_of("b", ["a", "b"], [Q]) == 1
    assert place_of("stranger", ["a", "b"], [Q]) is None


@pytest.mark.parametrize(
    ("member", "group", "held"), [("", ["a"], [Q]), ("a", [], [Q]), ("a", ["a"], [])]
)
def test_nothing_to_divide_or_nobody_to_get_it_is_a_mistake(
    member: str, group: list[str], held: list[QueueRef]
) -> None:
    with pytest.raises(ValueError, match="an allocation needs"):
        place_of(member, group, held)
