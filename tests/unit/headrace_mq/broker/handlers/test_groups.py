from types import SimpleNamespace

import pytest

from headrace_mq.broker.handlers import groups as subject
from headrace_mq.broker.replicas.figures import ReplicaFigures
from headrace_mq.broker.replicas.progress.losses import PossibleLoss
from headrace_mq.broker.replicas.repairs.repairs import RepairFigures
from headrace_mq.errors import GroupNotFound, InvalidArgument, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    NO_TRAFFIC,
    BrokerStatus,
    CompactionDescription,
    ConnectionDescription,
    ConnectionsAnswer,
    DescribeGroup,
    DescribeLag,
    DescribeQueues,
    GroupDescription,
    GroupsAnswer,
    GroupSummary,
    LagAnswer,
    ListConnections,
    ListGroups,
    QueueLag,
    QueuesAnswer,
    Traffic,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Fetch,
    FetchFrom,
    GroupAnswer,
    Heartbeat,
    HeldQueues,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    QueueName,
    UnlockQueues,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import (
    GroupRules,
    LeaderDescription,
    NoteChange,
    ReplicaDescription,
    SetGroup,
)


async def commit(client, group, *offsets, topic="t") -> None:
    entries = [CommittedOffset(topic, *entry) for entry in offsets]
    await client.ask(RequestCode.COMMIT_OFFSETS, CommitOffsets(group, "", 0, entries))


async def listed(client, after="") -> GroupsAnswer:
    return decode(GroupsAnswer, await client.ask(RequestCode.LIST_GROUPS, ListGroups(after)))


async def lag(client, group, *topics) -> LagAnswer:
    body = await client.ask(RequestCode.DESCRIBE_LAG, DescribeLag(group, list(topics)))
    return decode(LagAnswer, body)


async def connections(client, role="") -> list[ConnectionDescription]:
    body = await client.ask(RequestCode.LIST_CONNECTIONS, ListConnections(role))
    return decode(ConnectionsAnswer, body).connections


@pytest.fixture
async def broker(start, clock):
    return await start(clock=clock)


async def test_lag_is_counted_from_the_end_of_each_queue(client, clock, batch) -> None:
    await client.create("t", 3)
    times = []
    for number in range(4):
        times.append(clock.now)
        await client.produce(batch("t", 0, b"%d" % number))
        clock.now += 1_000
    await client.produce(batch("t", 1, b"a", b"b"))
    await commit(client, "g", (0, 1), (1, 2))
    answer = await lag(client, "g", "t")
    assert answer == LagAnswer(
        clock.now,
        [
            QueueLag("t", 0, 0, 4, 1, 3, times[1]),
            QueueLag("t", 1, 0, 2, 2, 0, 0),
            QueueLag("t", 2, 0, 0, -1, 0, 0),
        ],
    )
    # One that never committed is behind by all that is held.
    assert [queue.lag for queue in (await lag(client, "new", "t")).queues] == [4, 2, 0]
    await client.produce(batch("t", 1, b"c"))
    assert [queue.lag for queue in (await lag(client, "g", "t")).queues] == [3, 1, 0]


async def test_lag_tells_whose_each_queue_is_by_its_lock_or_else_by_what_members_say(
    client, clock
) -> None:
    await client.create("t", 4)

    async def told() -> list[tuple[str, int]]:
        return [(one.member, one.held_ms) for one in (await lag(client, "g", "t")).queues]

    join, beat = RequestCode.JOIN_GROUP, RequestCode.HEARTBEAT
    await client.ask(join, JoinGroup("g", "a", ["t"], [HeldQueues("t", [0, 1])]))
    clock.monotonic += 300
    await client.ask(join, JoinGroup("g", "b", ["t"]))
    names = [QueueName("t", 1), QueueName("t", 2)]
    await client.ask(RequestCode.LOCK_QUEUES, LockQueues("g", "b", names))
    clock.monotonic += 200
    assert await told() == [("a", 500), ("b", 200), ("b", 200), ("", 0)]
    # What it still has it has had for as long; what it takes over is its from the last word on.
    await client.ask(beat, Heartbeat("g", "a", [HeldQueues("t", [0, 3])]))
    await client.ask(beat, Heartbeat("g", "b", [HeldQueues("t", [3])]))
    clock.monotonic += 100
    assert await told() == [("a", 600), ("b", 300), ("b", 300), ("b", 100)]
    await client.ask(RequestCode.UNLOCK_QUEUES, UnlockQueues("g", "b", names[:1]))
    await client.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "a"))
    assert await told() == [("", 0), ("", 0), ("b", 300), ("b", 100)]
    assert (await lag(client, "other", "t")).queues[2].member == ""


async def test_messages_that_are_gone_are_no_lag(client, broker, batch, monkeypatch) -> None:
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a", b"b", b"c", b"d"))
    await commit(client, "g", (0, 1))
    index = broker._state.store._queues.get(QueueRef("t", 0)).index
    monkeypatch.setattr(index, "_first", 3)
    (queue,) = (await lag(client, "g", "t")).queues
    assert (queue.first, queue.committed, queue.lag) == (3, 1, 1)


async def test_groups_are_listed_by_name_with_members_and_offsets(client, batch) -> None:
    await client.create("t", 2)
    await client.produce(batch("t", 0, b"a", b"b"), batch("t", 1, b"c"))
    await commit(client, "idle", (0, 1))
    await client.ask(RequestCode.JOIN_GROUP, JoinGroup("busy", "m", ["t", "not-there-yet"]))
    assert await listed(client) == GroupsAnswer(
        [GroupSummary("busy", 1, 2, 3, commits=False), GroupSummary("idle", 0, 1, 1)], more=False
    )
    assert [one.group for one in (await listed(client, "busy")).groups] == ["idle"]


async def test_a_listing_is_cut_and_goes_on_behind_the_last_name(client, monkeypatch) -> None:
    await client.create("t", 4)
    for number in range(5):
        await commit(client, f"g{number}", *((queue, 0) for queue in range(4)))
    monkeypatch.setattr(subject, "QUEUES_COUNTED_MAX", 9)
    first = await listed(client)
    assert ([one.group for one in first.groups], first.more) == (["g0", "g1"], True)
    monkeypatch.setattr(subject, "GROUPS_LISTED_MAX", 1)
    second = await listed(client, "g1")
    assert ([one.group for one in second.groups], second.more) == (["g2"], True)
    monkeypatch.setattr(subject, "QUEUES_COUNTED_MAX", 0)
    assert [one.group for one in (await listed(client, "g3")).groups] == ["g4"]


async def test_a_group_is_described_with_its_members(client, broker, clock, connect) -> None:
    await client.create("t", 2)
    await commit(client, "g", (0, 0))
    since = clock.now
    other = await connect(broker, "other")
    await other.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m2", ["u"]))
    clock.now += 500
    clock.monotonic += 500
    await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m1", ["t"]))
    body = await client.ask(RequestCode.DESCRIBE_GROUP, DescribeGroup("g"))
    group = decode(GroupDescription, body)
    assert (group.group, group.topics) == ("g", ["t"])
    assert group.generation == broker._state.groups.view("g").generation
    assert [(m.member, m.topics, m.heard_ms_ago) for m in group.members] == [
        ("m1", ["t"], 0),
        ("m2", ["u"], 500),
    ]
    host, port = other.writer.get_extra_info("sockname")[:2]
    assert (group.members[1].address, group.members[1].since_ms) == (f"{host}:{port}", since)


async def test_a_group_that_is_not_there_is_refused(client) -> None:
    refused = await client.refusal(RequestCode.DESCRIBE_GROUP, DescribeGroup("g"))
    assert isinstance(refused, GroupNotFound)
    await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    await client.ask(RequestCode.DESCRIBE_GROUP, DescribeGroup("g"))
    await client.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "m"))
    assert isinstance(
        await client.refusal(RequestCode.DESCRIBE_GROUP, DescribeGroup("g")), GroupNotFound
    )


async def test_lag_of_what_is_not_there_or_too_much_is_refused(client) -> None:
    refused = await client.refusal(RequestCode.DESCRIBE_LAG, DescribeLag("g", ["t"]))
    assert isinstance(refused, TopicNotFound)
    for topic in ("t", "u"):
        await client.create(topic, 1_024)
    refused = await client.refusal(RequestCode.DESCRIBE_LAG, DescribeLag("g", ["t", "u"]))
    assert isinstance(refused, InvalidArgument)


async def test_connections_are_described_with_their_client_and_their_traffic(
    client, broker, clock, connect, batch
) -> None:
    await client.create("t", 1)
    producer = await connect(broker, "producer")
    await producer.produce(batch("t", 0, b"a", b"b"), batch("t", 0, b"c"))
    consumer = await connect(broker, "consumer")
    for group in ("h", "g"):
        await consumer.ask(RequestCode.JOIN_GROUP, JoinGroup(group, "m", ["t"]))
    reader = await connect(broker, "reader")
    await reader.ask(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1, 0))
    found = await connections(client)
    assert [(one.client_id, one.roles, one.groups, one.produced) for one in found] == [
        ("client", [], [], 0),
        ("producer", ["producer"], [], 3),
        ("consumer", ["consumer"], ["g", "h"], 0),
        ("reader", ["reader"], [], 0),
    ]
    for one, raw in zip(found, (client, producer, consumer, reader), strict=True):
        assert one.address.endswith(f":{raw.writer.get_extra_info('sockname')[1]}")
        assert one.since_ms == clock.now
        assert min(one.received_bytes, one.sent_bytes) > 16
    assert [one.client_id for one in await connections(client, "reader")] == ["reader"]
    assert isinstance(
        await client.refusal(RequestCode.LIST_CONNECTIONS, ListConnections("boss")),
        InvalidArgument,
    )


async def test_a_connection_that_is_gone_is_not_listed(client, broker, connect, until) -> None:
    other = await connect(broker, "other")
    other.writer.transport.abort()
    await until(lambda: len(broker._state.server.connections) == 1)
    assert [one.client_id for one in await connections(client)] == ["client"]


async def test_traffic_is_counted_by_queue_by_group_and_in_all(
    client, broker, clock, batch
) -> None:
    await client.create("t", 2)
    batches = [batch("t", 0, b"a", b"b"), batch("t", 1, b"c")]
    again = batch("t", 0, b"p", producer_id=7, first_sequence=0)
    await client.produce(*batches, again)
    await client.produce(again)
    fetching = Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0, "g")
    await commit(client, "g", (0, 0))
    await client.ask(RequestCode.FETCH, fetching)
    await client.ask(RequestCode.FETCH, Fetch([FetchFrom("t", 1, 0)], 1 << 20, 0))
    clock.monotonic += 1_000
    sizes = [len(one) for one in batches]
    in_0, in_1 = (3, sizes[0] + len(again)), (1, sizes[1])
    body = await client.ask(RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t"]))
    queues = decode(QueuesAnswer, body).queues
    assert [queue.produced for queue in queues] == [Traffic(*in_0, *in_0), Traffic(*in_1, *in_1)]
    assert [queue.fetched for queue in queues] == [Traffic(*in_0, *in_0), Traffic(*in_1, *in_1)]
    traffic = [queue.fetched for queue in (await lag(client, "g", "t")).queues]
    assert traffic == [Traffic(*in_0, *in_0), NO_TRAFFIC]
    assert (await listed(client)).groups[0].fetched == Traffic(*in_0, *in_0)
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert status.produced == status.fetched
    assert (status.produced.messages_1s, status.produced.bytes_10s) == (4, in_0[1] + in_1[1])
    clock.monotonic += 60_000
    await broker._expire_members()
    assert len(broker._state.produced) == len(broker._state.fetched_by) == 0


async def test_the_status_of_the_broker_counts_what_it_holds(
    client, broker, batch, monkeypatch
) -> None:
    await client.create("t", 2)
    await client.create("u", 1, "forever")
    await client.produce(batch("t", 0))
    await commit(client, "g", (0, 1))
    await client.ask(RequestCode.JOIN_GROUP, JoinGroup("h", "m", ["t"]))
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert (status.topics, status.queues, status.groups, status.connections) == (2, 3, 2, 1)
    assert status.refuses == ""
    forever, transient, compact = status.logs
    assert (compact.log, compact.segments) == ("compact", 0)
    assert status.compaction == CompactionDescription()
    assert (forever.log, forever.segments, forever.bytes) == ("forever", 0, 0)
    assert (transient.segments, transient.first, transient.end > 0) == (1, 0, True)
    assert transient.bytes >= 1 << 20
    monkeypatch.setattr(broker._state.watermarks, "refusal", "the disk is nearly full")
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert status.refuses == "the disk is nearly full"


async def test_the_status_has_what_the_process_takes_of_its_machine(client) -> None:
    (process,) = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS)).process
    assert process.software.startswith("headrace-python")
    assert process.cpu_ms > 0
    assert process.memory_bytes > 1 << 20
    assert 0 < process.disk_free_bytes <= process.disk_bytes
    assert process.refuse_percent == 90


async def test_the_status_of_a_leader_has_what_it_knows_of_its_group(
    client, broker, monkeypatch
) -> None:
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert (status.repaired, status.unrepaired, status.shortage, status.leads) == (0, 0, "", [])
    replica = ReplicaFigures("b:1", in_sync=True, lag_bytes=9, lag_ms=80, loss_bytes=7, loss_ms=60)
    followers = SimpleNamespace(
        repairs=RepairFigures(repaired=5, waiting=3, hopeless=2),
        may_lose=lambda: PossibleLoss(7, 60),
        figures=lambda: (replica,),
        ack="leader",
        leadership=SimpleNamespace(shortage="1 of 2 is there"),
    )
    with monkeypatch.context() as leading:
        leading.setattr(broker._state, "followers", followers)
        (body,) = subject.broker_status(broker._state, None, None)
    status = decode(BrokerStatus, body)
    assert (status.repaired, status.unrepaired, status.shortage) == (5, 2, "1 of 2 is there")
    (leads,) = status.leads
    assert leads == LeaderDescription("leader", 7, 60, 0, [ReplicaDescription(*replica)])


async def set_group(client, group, **values) -> GroupRules:
    body = await client.ask(RequestCode.SET_GROUP, SetGroup(group, **values))
    return decode(GroupRules, body)


async def test_an_operators_rules_for_a_group_appear_in_every_answer_about_it(
    client, clock
) -> None:
    await client.create("t", 1)
    joined = await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    assert decode(GroupAnswer, joined).consume
    since = clock.now
    assert await set_group(client, "g", consume="off") == GroupRules("g", False, -1, since)
    clock.now += 1_000
    # Said again, or something else said: it has been paused since then.
    assert await set_group(client, "g", consume="off") == GroupRules("g", False, -1, since)
    assert await set_group(client, "g", retries=3) == GroupRules("g", False, 3, since)
    beat = decode(GroupAnswer, await client.ask(RequestCode.HEARTBEAT, Heartbeat("g", "m")))
    assert (beat.consume, beat.retries, len(beat.members)) == (False, 3, 1)
    joined = await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    assert decode(GroupAnswer, joined) == beat
    (one,) = (await listed(client)).groups
    assert (one.group, one.members, one.consume, one.retries) == ("g", 1, False, 3)
    body = await client.ask(RequestCode.DESCRIBE_GROUP, DescribeGroup("g"))
    assert decode(GroupDescription, body).rules == [GroupRules("g", False, 3, since)]
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert (status.paused, status.paused_groups) == (1, ["g"])
    assert await set_group(client, "g", consume="on") == GroupRules("g", True, 3, 0)
    assert await set_group(client, "g", retries=-1) == GroupRules("g")
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert (status.paused, status.paused_groups) == (0, [])


async def test_a_group_of_which_something_was_said_is_known_without_members_and_offsets(
    client, monkeypatch
) -> None:
    for name in ("c", "a", "b"):
        await set_group(client, name, consume="off")
    assert [one.group for one in (await listed(client)).groups] == ["a", "b", "c"]
    body = await client.ask(RequestCode.DESCRIBE_GROUP, DescribeGroup("b"))
    described = decode(GroupDescription, body)
    assert (described.members, described.topics, described.rules[0].consume) == ([], [], False)
    monkeypatch.setattr(subject, "PAUSED_TOLD_MAX", 2)
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert (status.groups, status.paused, status.paused_groups) == (3, 3, ["a", "b"])


@pytest.mark.parametrize(
    "wrong",
    [SetGroup("", "off"), SetGroup("x" * 256), SetGroup("g", retries=-3), SetGroup("g", "no")],
)
async def test_invalid_rules_for_a_group_are_refused(client, wrong) -> None:
    refused = await client.refusal(RequestCode.SET_GROUP, wrong)
    assert isinstance(refused, InvalidArgument)
    assert (await listed(client)).groups == []


async def test_a_change_outside_of_the_broker_is_answered_as_it_was_noted(client) -> None:
    asked = NoteChange("projection pause balances", "bank.projection.balances")
    body = await client.ask(RequestCode.NOTE_CHANGE, asked)
    assert decode(NoteChange, body) == asked
    refused = await client.refusal(RequestCode.NOTE_CHANGE, NoteChange(" "))
    assert "say what is changed" in str(refused)
