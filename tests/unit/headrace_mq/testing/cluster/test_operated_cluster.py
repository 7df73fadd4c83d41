"""The simulation of a group with an operator repeats a run by its seed, and shows what it is to show."""

from headrace_mq.testing.cluster.operated_cluster import OperatedCluster, run


def test_a_seed_gives_the_same_run() -> None:
    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_broker_that_ran_alone_founds_the_group_with_its_messages() -> None:
    made = [OperatedCluster(seed) for seed in range(20)]
    founded = [each for each in made if each.acked["forever"]]
    assert len(made) > len(founded) > 0
    for cluster in founded:
        (founder,) = cluster.record.in_sync
        assert founder.name == "a"
        assert cluster.acked["forever"] == cluster.nodes["a"].logs["forever"].entries
