"""Each promise is broken by what it forbids."""

import pytest

from headrace_mq.cluster.frames import Send
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.testing.cluster.machines import SimulatedNode
from headrace_mq.testing.cluster.promises import (
    BrokenPromise,
    check_change,
    check_copies,
    check_epochs,
    check_leader,
    check_readable,
    require,
)


@pytest.fixture
def node() -> SimulatedNode:
    """A replica that shows one entry."""
    made = SimulatedNode("a")
    made.member = ClusterMember(made.me, made.logs)
    assert made.member.on_send(Send(0, "forever", 0, 1), 1)
    made.logs["forever"].append([(1, 7)])
    return made


def test_a_promise_that_holds_is_silent() -> None:
    require(True, "all is well")
    with pytest.raises(BrokenPromise, match="lost"):
        require(False, "lost")


def test_readers_see_acknowledged_entries_only(node: SimulatedNode) -> None:
    check_readable(node, {"forever": [(1, 7)], "transient": []})
    for acked in ([], [(1, 8)]):
        with pytest.raises(BrokenPromise, match="not acknowledged"):
            check_readable(node, {"forever": acked, "transient": []})
    node.member = None
    check_readable(node, {})


def test_a_log_of_which_others_may_be_shown_is_left_out(node: SimulatedNode) -> None:
    check_readable(node, {"forever": [], "transient": []}, ["forever"])


def test_every_member_has_what_is_acknowledged_on_its_disk(node: SimulatedNode) -> None:
    with pytest.raises(BrokenPromise, match="a of the set lacks it"):
        check_copies([node], "forever", 0, (1, 7))
    node.logs["forever"].start()
    check_copies([node], "forever", 0, (1, 7))
    with pytest.raises(BrokenPromise, match="forever 0 is acknowledged"):
        check_copies([node], "forever", 0, (1, 8))


def test_a_leader_has_what_is_acknowledged(node: SimulatedNode) -> None:
    check_leader(node, "forever", [(1, 7)])
    for acked in ([(1, 8)], [(1, 7), (1, 8)]):
        with pytest.raises(BrokenPromise, match="leader a lacks forever"):
            check_leader(node, "forever", acked)


def test_epochs_grow_and_are_noted(node: SimulatedNode) -> None:
    check_epochs(node)
    log = node.logs["forever"]
    log.entries.append((2, 8))
    with pytest.raises(BrokenPromise, match="not its entries"):
        check_epochs(node)
    log.entries.append((1, 9))
    with pytest.raises(BrokenPromise, match="fall"):
        check_epochs(node)


def test_an_epoch_has_one_leader_from_the_set_before() -> None:
    a, b = Identity("a", "1"), Identity("b", "1")
    record = GroupRecord(3, 2, "a", frozenset({a}))
    check_change(record, Proposal(3, 2, "a", frozenset({a, b})))
    check_change(record, Proposal(3, 3, "a", frozenset({a})))
    for epoch, leader, promise in (
        (4, "a", "jumped"),
        (2, "b", "two leaders"),
        (3, "b", "outside"),
    ):
        with pytest.raises(BrokenPromise, match=promise):
            check_change(record, Proposal(3, epoch, leader, frozenset({a, b})))
