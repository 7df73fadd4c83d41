"""`headrace group` as an operator meets it, against a broker in a process of its own."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import GroupNotEmpty, GroupNotFound, InvalidArgument, OffsetOutOfRange
from headrace_mq.message import Message, QueueRef


@pytest.fixture
def group(broker_address: str, topic: str) -> str:
    """A group that stands at 3 of 5 in queue 0 and has nothing in queue 1 of its topic."""

    async def prepare() -> None:
        async with AdminClient(broker_address) as admin:
            await admin.create_topic(topic, queues=2)
            async with Producer(broker_address, selector=lambda _message, _queues: 0) as producer:
                await producer.send_many([Message(topic=topic, body=b"x")] * 5)
            await admin.set_offsets(f"group.{topic}", {QueueRef(topic, 0): 3})

    asyncio.run(prepare())
    return f"group.{topic}"


def offset(broker_address: str, group: str, topic: str) -> int:
    async def ask() -> int:
        async with AdminClient(broker_address) as admin:
            return (await admin.offsets(group, [topic]))[QueueRef(topic, 0)]

    return asyncio.run(ask())


def stands(broker_address: str, group: str, topic: str, place: int) -> None:
    """Puts a group somewhere as its members would."""

    async def commit() -> None:
        async with AdminClient(broker_address) as admin:
            await admin.set_offsets(group, {QueueRef(topic, 0): place})

    asyncio.run(commit())


def test_a_dry_run_shows_every_queue_and_moves_nothing(run, group, topic, broker_address) -> None:
    shown = run("group", "reset", group, "--shift=-2", "--dry-run")
    *table, last = shown.rows
    assert table == [
        ["topic", "queue", "from", "to", "delivered again", "skipped"],
        [topic, "0", "3", "1", "2", "0"],
        [topic, "1", "none", "none", "0", "0"],
    ]
    told = "was not moved; without --dry-run: 2 messages delivered again, 0 skipped"
    assert last == [f"group {group} {told}"]
    assert offset(broker_address, group, topic) == 3


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (["--earliest"], 0),
        (["--latest"], 5),
        (["--offset", "4", "--queue", "0"], 4),
        (["--shift", "1"], 4),
        (["--time", "1970-01-02T00:00:00Z"], 0),
        (["--time", "2999-01-01"], 5),
        (["--time", "32503680000000"], 5),
    ],
)
def test_a_group_is_moved_to_each_kind_of_target(
    run, group, topic, broker_address, target, reached
) -> None:
    done = run("group", "reset", group, "--topic", topic, *target, "--json")
    assert (done.status, done.json["moved"]) == (0, True)
    assert done.json["moves"][0] == {
        "topic": topic, "queue_id": 0, "first": 0, "end": 5, "before": 3, "after": reached,
        "redelivered": max(0, 3 - reached), "skipped": max(0, reached - 3),
    }  # fmt: skip
    assert offset(broker_address, group, topic) == reached


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ([], "exactly one"),
        (["--latest", "--earliest"], "exactly one"),
        (["--latest", "--offset", "0"], "exactly one"),
        (["--time", "yesterday"], "is no time"),
    ],
)
def test_a_target_that_is_not_clear_is_a_mistake(run, group, target, told) -> None:
    done = run("group", "reset", group, *target)
    assert (done.status, told in done.output) == (2, True)


def test_a_group_is_cloned_and_deleted(run, group, topic, broker_address) -> None:
    copy = f"copy.{topic}"
    assert f"group {copy} moved: 0 messages" in run("group", "clone", group, copy).output
    assert offset(broker_address, copy, topic) == 3
    would = run("group", "delete", copy, "--dry-run")
    assert would.rows[1] == [topic, "0", "3", "none", "3", "0"]
    assert run("group", "delete", copy).status == 0
    assert offset(broker_address, copy, topic) == -1
    assert isinstance(run("group", "delete", copy).error, GroupNotFound)
    assert isinstance(run("group", "clone", copy, group).error, GroupNotFound)


def test_a_reset_is_taken_back(run, group, topic, broker_address) -> None:
    before = offset(broker_address, group, topic)
    run("group", "reset", group, "--earliest")
    would = run("group", "undo", group, "--dry-run")
    assert would.rows[1][:4] == [topic, "0", "0", str(before)]
    assert "was not moved" in would.output
    assert "it was moved at" in would.output
    assert run("group", "undo", group, "--json").json["moves"][0]["after"] == before
    assert offset(broker_address, group, topic) == before
    assert isinstance(run("group", "undo", group).error, GroupNotFound)
    run("group", "reset", group, "--earliest")
    stands(broker_address, group, topic, before + 1)
    would = run("group", "undo", group, "--dry-run")
    assert (would.status, "would be read twice" in would.output) == (1, True)
    assert isinstance(run("group", "undo", group).error, InvalidArgument)


def test_the_move_that_was_shown_is_taken_back_and_no_other(
    run, group, topic, broker_address
) -> None:
    run("group", "reset", group, "--earliest")
    shown = run("group", "undo", group, "--dry-run", "--json").json["reset_at_ms"]
    run("group", "reset", group, "--latest")
    at = offset(broker_address, group, topic)
    refused = run("group", "undo", group, "--reset-at-ms", str(shown)).error
    assert isinstance(refused, InvalidArgument)
    assert "moved once more" in str(refused)
    assert offset(broker_address, group, topic) == at
    stands(broker_address, group, topic, 3)


def test_an_impossible_reset_is_a_mistake(run, group, topic, broker_address) -> None:
    assert isinstance(run("group", "reset", group, "--offset", "6").error, OffsetOutOfRange)
    assert isinstance(run("group", "reset", f"no.{group}", "--latest").error, GroupNotFound)

    async def reset_at_work() -> None:
        async with Consumer(broker_address, group=group, topics=[topic]):
            done = await asyncio.to_thread(run, "group", "reset", group, "--latest")
        assert isinstance(done.error, GroupNotEmpty)

    asyncio.run(reset_at_work())
    assert offset(broker_address, group, topic) == 3


def test_groups_are_listed_with_their_lag(run, group) -> None:
    listed = run("group", "list")
    assert listed.rows[0] == [
        "group", "members", "queues", "lag", "messages/s", "bytes/s", "retries", "state",
    ]  # fmt: skip
    assert [group, "0", "1", "2", "0", "0", "-", "-"] in listed.rows
    (one,) = [one for one in run("group", "list", "--json").json if one["group"] == group]
    assert one == {
        "group": group, "members": 0, "queues": 1, "lag": 2,
        "fetched": {"messages_1s": 0, "bytes_1s": 0, "messages_10s": 0, "bytes_10s": 0},
        "commits": True, "consume": True, "retries": -1,
    }  # fmt: skip


def test_a_group_that_keeps_its_own_offsets_has_no_lag(run, group, topic, broker_address) -> None:
    name = f"projection.{topic}"

    async def begin(_queues: Sequence[QueueRef]) -> dict[QueueRef, int]:
        return {}

    async def shown() -> list[Any]:
        consumer = Consumer(broker_address, group=name, topics=[topic], load_offsets=begin)
        await consumer.start()
        try:
            await consumer.poll()
            commands = (["list"], ["show", name], ["list", "--json"])
            return [await asyncio.to_thread(run, "group", *each) for each in commands]
        finally:
            await consumer.aclose()

    table, one, plain = asyncio.run(shown())
    (row,) = [each for each in table.rows if each[0] == name]
    assert row[1:3] == ["1", "2"]
    assert row[3] != "5"  # the lag's cell is empty
    assert "no offsets here: it has yet to begin, or keeps them itself" in one.output
    assert [each["commits"] for each in plain.json if each["group"] == name] == [False]


def test_a_group_is_shown_with_members_and_lag(run, group, topic, broker_address) -> None:
    shown = run("group", "show", group)
    assert shown.rows[0] == [
        "topic", "queue", "member", "since (UTC)", "end", "offset", "lag", "oldest waits for",
        "messages/s",
    ]  # fmt: skip
    assert shown.rows[1][:7] == [topic, "0", "none", "-", "5", "3", "2"]
    assert shown.rows[1][7].endswith(" s")
    assert shown.rows[2] == [topic, "1", "none", "-", "0", "none", "0", "-", "0"]
    assert shown.rows[3] == [f"group {group}: 0 members, 2 messages behind"]

    async def show_at_work() -> None:
        async with Consumer(broker_address, group=group, topics=[topic]) as consumer:
            # What is there has come: so the consumer has its queues.
            await consumer.poll()
            done = await asyncio.to_thread(run, "group", "show", group)
            told = await asyncio.to_thread(run, "group", "show", group, "--json")
        assert done.rows[0] == [
            "member", "address", "software", "connected (UTC)", "held up", "queues", "topics",
        ]  # fmt: skip
        member = done.rows[1][0]
        assert done.rows[1][-2] == "2"
        for row in done.rows[3:5]:
            assert row[2] == member
            held = datetime.fromisoformat(f"{row[3]}+00:00")
            assert timedelta(0) <= datetime.now(UTC) - held < timedelta(minutes=1)
        assert done.rows[1][-1] == topic
        (member,) = told.json["group"]["members"]
        assert (member["member"], member["topics"]) == (done.rows[1][0], [topic])
        assert told.json["queues"][0]["lag"] == 2
        assert told.json["now_ms"] >= told.json["queues"][0]["oldest_stored_at_ms"] > 0

    asyncio.run(show_at_work())
    assert isinstance(run("group", "show", f"no.{group}").error, GroupNotFound)


def test_a_limit_of_a_group_is_set_listed_and_removed(run, group) -> None:
    done = run("group", "limit", group, "--messages", "2", "--policy", "reject")
    assert done.rows == [[f"group {group}: 2 messages, then reject"]]
    listed = run("group", "limits")
    assert listed.rows[0] == ["group", "limit", "policy", "behind", "skipped", "alarm"]
    assert [group, "2", "reject", "2", "0", "yes"] in listed.rows
    (told,) = [one for one in run("group", "limits", "--json").json if one["group"] == group]
    assert (told["messages"], told["alarm"]) == (2, True)
    (alarms,) = [row[1] for row in run("broker", "show").rows if row[0] == "backlog alarms"]
    assert group in alarms
    assert run("group", "limit", group, "--remove").rows == [[f"group {group}: no limit"]]
    assert group not in run("group", "limits").output


def test_a_limit_needs_a_number_or_its_removal_and_a_policy_that_there_is(run, group) -> None:
    assert run("group", "limit", group).status == 2
    assert run("group", "limit", group, "--messages", "2", "--remove").status == 2
    refused = run("group", "limit", group, "--messages", "2", "--policy", "pray")
    assert isinstance(refused.error, InvalidArgument)


def test_a_group_is_paused_and_resumed_and_every_command_shows_that(
    run, group, broker_address
) -> None:
    paused = run("group", "set", group, "--consume", "off")
    told = f"group {group}: PAUSED by an operator since "
    assert paused.output.startswith(told)
    assert f"`headrace group set {group} --consume on`" in paused.output
    assert "as often as each was set up" in paused.output
    assert told in run("group", "show", group).output
    (row,) = [row for row in run("group", "list").rows if row[0] == group]
    assert row[-1] == "paused by an operator"
    (row,) = [row for row in run("broker", "show").rows if row[0] == "groups paused by an operator"]
    assert group in row[1].split()
    set_ = run("group", "set", group, "--retries", "1000", "--json").json
    assert (set_["consume"], set_["retries"]) == (False, 1_000)
    assert "try a failed message 1,000 times again" in run("group", "show", group).output
    (row,) = [row for row in run("group", "list").rows if row[0] == group]
    assert row[-2:] == ["1,000", "paused by an operator"]
    assert (
        f"group {group}: it gets messages" in run("group", "set", group, "--consume", "on").output
    )
    done = run("group", "set", group, "--retries", "default")
    assert (done.status, "as often as each was set up" in done.output) == (0, True)
    assert told not in run("group", "show", group).output
    # The broker is shared: a group of another test may still be paused.
    paused_groups = [
        row for row in run("broker", "show").rows if row[0].startswith("groups paused")
    ]
    assert all(group not in row[1].split() for row in paused_groups)


@pytest.mark.parametrize(
    "options",
    [(), ("--consume", "maybe"), ("--retries", "-1"), ("--retries", "many"), ("--retries", "1.5")],
)
def test_a_value_that_a_group_cannot_have_is_a_mistake(run, group, options) -> None:
    assert run("group", "set", group, *options).status == 2
