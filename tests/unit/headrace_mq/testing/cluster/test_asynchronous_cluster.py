"""The simulation of a group whose leaders may acknowledge alone repeats a run by its seed, and shows what it is to show."""

from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER, ACK_TO_IN_SYNC
from headrace_mq.testing.cluster.asynchronous_cluster import AsynchronousCluster, run


def test_a_seed_gives_the_same_run() -> None:
    assert run(5) == run(5)
    assert run(5) != run(6)


def test_an_operator_chooses_the_acknowledgement() -> None:
    cluster = next(
        one for one in map(AsynchronousCluster, range(20)) if one.record.ack == ACK_IN_SYNC
    )
    found = []
    for wanted in (ACK_LEADER, ACK_LEADER, ACK_IN_SYNC, ACK_IN_SYNC):
        cluster.choose(wanted)
        found.append((cluster.record.version, cluster.record.ack))
    assert found == [(2, ACK_LEADER), (2, ACK_LEADER), (3, ACK_TO_IN_SYNC), (3, ACK_TO_IN_SYNC)]
    cluster.calm_down()
    assert cluster.record.ack == ACK_IN_SYNC
