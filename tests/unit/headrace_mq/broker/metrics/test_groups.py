"""Backlogs of groups: by queue where there is room, else added up."""

from headrace_mq.broker.metrics.groups import group_samples
from headrace_mq.message import QueueRef


async def filled(client, batch, topic: str = "t", queues: int = 2, messages: int = 3) -> None:
    await client.create(topic, queues)
    for queue in range(queues):
        await client.produce(batch(topic, queue, *[b"1"] * messages))


async def test_a_backlog_has_messages_and_an_age_by_queue(
    start, connect, clock, batch, read
) -> None:
    broker = await start(clock=clock)
    client = await connect(broker)
    await filled(client, batch)
    broker.state.offsets.commit("g", [(QueueRef("t", 0), 1), (QueueRef("t", 1), 3)])
    clock.now += 5_000
    found = read(group_samples(broker.state, groups_max=10, queues_max=10))
    assert found["group_backlog_messages", "g", "t", "0"] == 2
    assert found["group_backlog_seconds", "g", "t", "0"] == 5
    assert found["group_backlog_messages", "g", "t", "1"] == 0
    assert found["group_backlog_seconds", "g", "t", "1"] == 0
    assert found["group_oldest_seconds", "g"] == 5
    assert found["group_members", "g"] == found["group_paused", "g"] == 0
    assert found["group_keeps_offsets", "g"] == 1
    assert found["metrics_summed", "groups"] == found["metrics_summed", "queues"] == 0


async def test_a_group_whose_queues_do_not_fit_has_them_added_up(
    broker, client, batch, read
) -> None:
    await filled(client, batch)
    for group in ("a", "b", "c"):
        broker.state.offsets.commit(group, [(QueueRef("t", 0), 1), (QueueRef("t", 1), 0)])
    found = read(group_samples(broker.state, groups_max=10, queues_max=3))
    assert found["group_backlog_messages", "a", "t", "1"] == 3
    assert found["group_backlog_messages", "b", "other", "other"] == 5
    assert ("group_backlog_messages", "b", "t", "1") not in found
    assert found["group_oldest_seconds", "b"] >= 0
    assert found["metrics_summed", "queues"] == 4


async def test_groups_above_the_limit_are_added_up(broker, client, batch, read) -> None:
    await filled(client, batch)
    for group in ("a", "b", "c"):
        broker.state.offsets.commit(group, [(QueueRef("t", 0), 1)])
    found = read(group_samples(broker.state, groups_max=1, queues_max=10))
    assert found["group_backlog_messages", "other", "other", "other"] == 4
    assert found["metrics_summed", "groups"] == 2
    assert {labels[0] for name, *labels in found if name == "group_members"} == {"a"}


async def test_a_group_that_commits_nothing_here_has_no_backlog(
    broker, client, batch, read
) -> None:
    await filled(client, batch)
    for group in ("a", "b"):
        broker.state.offsets.commit(group, [(QueueRef("t", 0), 1)])
        broker.state.offsets.leave(group, [QueueRef("t", 0)])
    broker.state.limits.set_group(_rules("b"))
    found = read(group_samples(broker.state, groups_max=10, queues_max=10))
    assert found["group_keeps_offsets", "b"] == 0
    assert found["group_paused", "b"] == 1
    assert not [name for name, *_ in found if name == "group_backlog_messages"]
    assert found.get(("group_oldest_seconds", "b")) is None
    assert (
        read(group_samples(broker.state, groups_max=0, queues_max=0))[
            "group_backlog_messages", "other", "other", "other"
        ]
        == 0
    )


def _rules(group: str):
    from headrace_mq.protocol.limits import GroupRules

    return GroupRules(group, consume=False, paused_at_ms=1)
