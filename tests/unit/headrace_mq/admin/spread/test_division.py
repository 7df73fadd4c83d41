"""How queues are divided among broker groups; the groups themselves are asked in the integration tests."""

import pytest

from headrace_mq.admin.spread.division import divided, spread_topic
from headrace_mq.errors import InvalidArgument, TopicExists
from headrace_mq.protocol.bodies import TopicDescription


def kept(queues: int, *owned: int) -> TopicDescription:
    return TopicDescription("t", queues, "forever", [], [], list(owned))


def test_a_new_topic_is_divided_in_blocks() -> None:
    said = {"g1": None, "g2": None, "g3": None}
    assert divided(said, "t", 8) == {"g1": [0, 1], "g2": [2, 3, 4], "g3": [5, 6, 7]}


def test_new_queues_go_to_the_groups_that_have_none() -> None:
    assert divided({"g1": kept(4), "g2": None}, "t", 8) == {"g1": [0, 1, 2, 3], "g2": [4, 5, 6, 7]}


def test_new_queues_are_divided_where_every_group_has_some() -> None:
    said = {"g1": kept(4, 0, 1), "g2": kept(4, 2, 3)}
    assert divided(said, "t", 8) == {"g1": [0, 1, 4, 5], "g2": [2, 3, 6, 7]}


def test_the_same_number_of_queues_changes_nothing() -> None:
    said = {"g1": kept(4), "g2": kept(8, 4, 5, 6, 7), "g3": None}
    assert divided(said, "t", 8) == {"g1": [0, 1, 2, 3], "g2": [4, 5, 6, 7]}


def test_queues_that_no_group_has_are_given_away_on_demand_alone() -> None:
    said = {"g1": kept(8, 0, 1, 2, 3), "g2": None}
    with pytest.raises(InvalidArgument, match="--resume"):
        divided(said, "t", 8)
    assert divided(said, "t", 8, resume=True) == {"g1": [0, 1, 2, 3], "g2": [4, 5, 6, 7]}


@pytest.mark.parametrize("queues", [0, 3, 1_025])
def test_a_number_of_queues_that_cannot_be_is_refused(queues: int) -> None:
    with pytest.raises(InvalidArgument, match="it can have 4 to"):
        divided({"g1": kept(4), "g2": None}, "t", queues)


def test_too_few_new_queues_for_the_groups_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="too few"):
        divided({"g1": kept(4), "g2": None, "g3": None}, "t", 5)


def test_groups_with_the_same_queue_are_refused() -> None:
    with pytest.raises(TopicExists, match="both have queue"):
        divided({"g1": kept(4), "g2": kept(4)}, "t", 8)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nameserver://h:1/c", "nameserver://h:1/c/g1"])
async def test_an_address_without_groups_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="name the groups"):
        await spread_topic(address, "t", 8)


def test_a_growth_over_groups_with_queues_is_finished_by_those_that_have_not_heard_of_it() -> None:
    said = {"g1": kept(12, 0, 1, 2, 3, 8, 9), "g2": kept(8, 4, 5, 6, 7)}
    with pytest.raises(InvalidArgument, match="--resume"):
        divided(said, "t", 12)
    assert divided(said, "t", 12, resume=True) == {
        "g1": [0, 1, 2, 3, 8, 9],
        "g2": [4, 5, 6, 7, 10, 11],
    }
    assert divided(said, "t", 16, resume=True) == {
        "g1": [0, 1, 2, 3, 8, 9, 12, 13],
        "g2": [4, 5, 6, 7, 10, 11, 14, 15],
    }
    three = {"g1": kept(12, 0, 1, 9), "g2": kept(8, 2, 3, 4), "g3": kept(12, 5, 6, 7, 11)}
    assert divided(three, "t", 12, resume=True)["g2"] == [2, 3, 4, 8, 10]


def test_a_queue_that_each_group_takes_for_anothers_is_given_to_none() -> None:
    said = {"g1": kept(8, 0, 1, 2, 3), "g2": kept(8, 4, 5, 6)}
    with pytest.raises(InvalidArgument, match="restore its backup"):
        divided(said, "t", 8, resume=True)


def test_a_group_that_lost_its_disk_gets_what_is_missing() -> None:
    said = {"g1": None, "g2": kept(8, 4, 5, 6, 7)}
    assert divided(said, "t", 8, resume=True) == {"g1": [0, 1, 2, 3], "g2": [4, 5, 6, 7]}
