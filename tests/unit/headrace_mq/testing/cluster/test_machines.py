"""A simulated log keeps its epochs as a store keeps them."""

from headrace_mq.cluster.record import Identity
from headrace_mq.testing.cluster.machines import SimulatedLog, SimulatedNode


def test_a_log_notes_the_epochs_of_what_it_takes_over() -> None:
    log = SimulatedLog()
    log.append([(1, 1), (1, 2), (3, 3)])
    assert log.history.starts == [(1, 0), (3, 2)]
    log.cut(1)
    assert log.history.starts == [(1, 0), (3, 2)]
    log.start()
    assert (log.end, log.durable, log.history.starts) == (1, 1, [(1, 0)])


def test_an_empty_disk_makes_another_member_of_a_machine() -> None:
    node = SimulatedNode("a")
    assert node.me == Identity("a", "store-0")
    node.store += 1
    assert node.me == Identity("a", "store-1")
