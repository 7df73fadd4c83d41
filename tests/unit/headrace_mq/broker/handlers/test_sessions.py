import pytest

from headrace_mq.errors import (
    InvalidArgument,
    MalformedRequest,
    NotGroupMember,
    ReplyUndeliverable,
    UnsupportedVersion,
)
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchFrom,
    GroupAnswer,
    GroupChanged,
    GroupMember,
    Heartbeat,
    HeldQueues,
    Hello,
    HelloAnswer,
    JoinGroup,
    LeaveGroup,
    Reply,
    ReplyPush,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY, PROTOCOL_VERSION


async def join(client, member: str, *topics: str, group: str = "g") -> GroupAnswer:
    request = JoinGroup(group, member, list(topics) or ["t"])
    return decode(GroupAnswer, await client.ask(RequestCode.JOIN_GROUP, request))


async def heartbeat(client, member: str, group: str = "g") -> GroupAnswer:
    return decode(GroupAnswer, await client.ask(RequestCode.HEARTBEAT, Heartbeat(group, member)))


async def told(client) -> GroupChanged:
    frame = await client.push()
    assert (frame.code, frame.correlation) == (RequestCode.PUSHED_GROUP_CHANGE, 0)
    return decode(GroupChanged, frame.body)


async def test_hello_names_the_broker_the_version_and_the_limit(broker, connect) -> None:
    client = await connect(broker, "")
    answer = await client.hello("c1")
    assert answer == HelloAnswer(
        broker.address, PROTOCOL_VERSION, 1, broker._state.settings.frame_bytes_max
    )


async def test_a_client_of_newer_versions_only_is_refused_and_closed(broker, connect) -> None:
    client = await connect(broker, "")
    newer = Hello("c", PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 3)
    assert isinstance(await client.refusal(RequestCode.HELLO, newer), UnsupportedVersion)
    assert await client.closed()


async def test_a_client_of_more_versions_speaks_the_brokers(broker, connect) -> None:
    client = await connect(broker, "")
    body = await client.ask(RequestCode.HELLO, Hello("c", 0, PROTOCOL_VERSION + 3))
    assert decode(HelloAnswer, body).version == PROTOCOL_VERSION


async def test_hello_is_said_once(client) -> None:
    assert isinstance(await client.refusal(RequestCode.HELLO, Hello("c", 1, 1)), MalformedRequest)
    assert await client.closed()


@pytest.mark.parametrize("name", ["", "x" * 256])
async def test_a_client_has_a_name_of_a_fair_length(broker, connect, name: str) -> None:
    client = await connect(broker, "")
    refused = await client.refusal(RequestCode.HELLO, Hello(name, 1, 1))
    assert isinstance(refused, InvalidArgument)
    await client.hello("a better name")


async def test_the_others_hear_of_a_join_and_of_a_leave(broker, connect) -> None:
    one, two = await connect(broker, "one"), await connect(broker, "two")
    await join(one, "a", "t", "u")
    answer = await join(two, "b")
    assert answer.members == [GroupMember("a", ["t", "u"]), GroupMember("b", ["t"])]
    assert await told(one) == GroupChanged("g", answer.generation, answer.members)
    await two.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "b"))
    left = await told(one)
    assert left.members == [GroupMember("a", ["t", "u"])]
    assert left.generation > answer.generation
    assert two.pushes == []


async def test_a_lost_connection_leaves_its_groups_at_once(broker, connect) -> None:
    one, two = await connect(broker, "one"), await connect(broker, "two")
    await join(one, "a")
    await join(two, "b")
    await told(one)
    two.writer.transport.abort()
    assert (await told(one)).members == [GroupMember("a", ["t"])]


async def test_a_silent_member_expires_though_its_connection_lives(
    start, connect, clock, until
) -> None:
    broker = await start(clock=clock, member_expiry_ms=1_000)
    one, two = await connect(broker, "one"), await connect(broker, "two")
    await join(one, "silent")
    await join(two, "alive")
    # In steps below half of the expiry, so that the broker does not take it for its own pause.
    for _ in range(5):
        clock.monotonic += 250
        await heartbeat(two, "alive")
        await until(lambda: broker._scanned_at_ms == clock.monotonic)
    assert (await told(two)).members == [GroupMember("alive", ["t"])]
    refused = await one.refusal(RequestCode.HEARTBEAT, Heartbeat("g", "silent"))
    assert isinstance(refused, NotGroupMember)


async def test_members_do_not_expire_because_the_broker_itself_was_paused(
    start, connect, clock, until
) -> None:
    broker = await start(clock=clock, member_expiry_ms=1_000)
    client = await connect(broker)
    await join(client, "a")
    clock.monotonic += 60_000
    await until(lambda: broker._scanned_at_ms == clock.monotonic)
    assert (await heartbeat(client, "a")).members == [GroupMember("a", ["t"])]


async def test_a_heartbeat_answers_the_view_of_the_group(client) -> None:
    joined = await join(client, "a")
    assert await heartbeat(client, "a") == joined


@pytest.mark.parametrize(
    "held", [[HeldQueues("t", list(range(1_025)))], [HeldQueues("t", [])] * 257]
)
async def test_a_member_that_says_it_holds_too_much_is_refused(client, held) -> None:
    refused = await client.refusal(RequestCode.JOIN_GROUP, JoinGroup("g", "a", ["t"], held))
    assert isinstance(refused, InvalidArgument)
    await join(client, "a")
    refused = await client.refusal(RequestCode.HEARTBEAT, Heartbeat("g", "a", held))
    assert isinstance(refused, InvalidArgument)


async def test_a_heartbeat_of_an_unknown_member_is_asked_to_join(client) -> None:
    refused = await client.refusal(RequestCode.HEARTBEAT, Heartbeat("g", "a"))
    assert isinstance(refused, NotGroupMember)
    assert "join again" in str(refused)


async def test_a_heartbeat_without_a_group_only_says_that_the_client_lives(client) -> None:
    assert await heartbeat(client, "", "") == GroupAnswer(0, [])


@pytest.mark.parametrize(
    "wrong",
    [
        JoinGroup("", "a", ["t"]),
        JoinGroup("g", "", ["t"]),
        JoinGroup("g" * 256, "a", ["t"]),
        JoinGroup("g", "a", []),
        JoinGroup("g", "a", ["no topic"]),
        JoinGroup("g", "a", [f"t{number}" for number in range(257)]),
    ],
)
async def test_a_join_with_values_out_of_range_is_refused(client, wrong: JoinGroup) -> None:
    refused = await client.refusal(RequestCode.JOIN_GROUP, wrong)
    assert isinstance(refused, InvalidArgument)


async def test_leaving_a_group_one_is_not_in_is_refused(client) -> None:
    refused = await client.refusal(RequestCode.LEAVE_GROUP, LeaveGroup("g", "a"))
    assert isinstance(refused, NotGroupMember)


async def test_a_reply_reaches_the_client_that_waits_for_it(broker, connect) -> None:
    caller, service = await connect(broker, "caller"), await connect(broker, "service")
    assert bytes(await service.ask(RequestCode.REPLY, Reply("caller", "42", b"done"))) == b""
    frame = await caller.push()
    assert (frame.code, frame.correlation) == (RequestCode.PUSHED_REPLY, 0)
    assert decode(ReplyPush, frame.body) == ReplyPush("42", b"done")


async def test_a_oneway_reply_is_delivered_and_not_answered(broker, connect) -> None:
    caller, service = await connect(broker, "caller"), await connect(broker, "service")
    service.send(RequestCode.REPLY, Reply("caller", "42", b"done"), flags=FLAG_ONEWAY)
    service.send(RequestCode.REPLY, Reply("nobody", "43", b"lost"), flags=FLAG_ONEWAY)
    assert decode(ReplyPush, (await caller.push()).body).correlation == "42"
    await service.ask(RequestCode.DESCRIBE_BROKER)
    assert service.answers == {}


async def test_a_reply_to_an_unknown_client_is_undeliverable(client) -> None:
    refused = await client.refusal(RequestCode.REPLY, Reply("nobody", "42", b"done"))
    assert isinstance(refused, ReplyUndeliverable)


async def test_the_newest_connection_of_a_client_gets_its_replies(broker, connect, until) -> None:
    old, new = await connect(broker, "caller"), await connect(broker, "caller")
    service = await connect(broker, "service")
    await service.ask(RequestCode.REPLY, Reply("caller", "1", b""))
    await new.push()
    old.writer.transport.abort()
    await until(lambda: len(broker._state.server.connections) == 2)
    await service.ask(RequestCode.REPLY, Reply("caller", "2", b""))
    assert decode(ReplyPush, (await new.push()).body).correlation == "2"


async def test_a_reply_to_a_client_that_does_not_read_is_not_piled_up(
    start, connect, batch, until
) -> None:
    broker = await start(outgoing_bytes_max=64 << 10)
    slow, service = await connect(broker, "slow"), await connect(broker, "service")
    await service.create("t", 1)
    await service.produce(batch("t", 0, bytes(1 << 20)))
    slow.writer.transport.pause_reading()
    for _ in range(20):
        slow.send(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0))
    await until(lambda: broker._state.clients["slow"].congested)
    refused = await service.refusal(RequestCode.REPLY, Reply("slow", "1", b""))
    assert isinstance(refused, ReplyUndeliverable)
    assert "does not read" in str(refused)
