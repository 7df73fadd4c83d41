"""Verbs about groups: what they would change is said before, and the same is done."""

import pytest

from headrace.console.problems import Mistake
from headrace_mq import Message, Producer
from headrace_mq.errors import GroupNotFound, InvalidArgument
from headrace_mq.message import QueueRef


@pytest.fixture
async def kitchen(admin) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(admin._link.address) as producer:
        await producer.send_many([Message(topic="orders", body=b"tea")] * 5)
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])


@pytest.mark.parametrize(
    ("to", "value", "skipped", "where"),
    [
        ("latest", "", 5, "the end"),
        ("offset", "2", 2, "offset 2"),
        ("shift", "3", 3, "3 messages on"),
        ("time", "2000-01-01", 0, "2000-01-01 00:00:00.000 UTC"),
        ("earliest", "", 0, "the oldest"),
    ],
)
async def test_a_reset_says_before_what_it_does(
    kitchen, run, ahead, to, value, skipped, where
) -> None:
    looked = await ahead("group reset", group="kitchen", to=to, value=value)
    assert where in looked.sentences[0]
    assert f"{skipped} are skipped" in looked.sentences[1]
    moved = await run("group reset", group="kitchen", to=to, value=value)
    assert (moved.moved, moved.moves[0].skipped) == (True, skipped)


async def test_a_reset_without_its_value_is_refused(kitchen, ahead) -> None:
    with pytest.raises(Mistake, match="value is missing"):
        await ahead("group reset", group="kitchen", to="offset")


async def test_a_group_is_paused_and_goes_on(kitchen, run, ahead) -> None:
    assert (await ahead("group set", group="kitchen")).hindered
    assert (
        "gets no messages"
        in (await ahead("group set", group="kitchen", consume="off")).sentences[0]
    )
    assert not (await run("group set", group="kitchen", consume="off")).consume
    assert (
        "gets messages again"
        in (await ahead("group set", group="kitchen", consume="on")).sentences[0]
    )
    assert "2 times" in (await ahead("group set", group="kitchen", retries=2)).sentences[0]
    assert (await run("group set", group="kitchen", consume="on", retries=2)).retries == 2


async def test_groups_come_with_the_furthest_behind_first(kitchen, run, admin) -> None:
    await admin.reset_offsets("billing", "latest", topics=["orders"])
    assert [one.group for one in (await run("group list"))["groups"]] == ["kitchen", "billing"]
    assert [
        one.group for one in (await run("group list", sort="name", search="BILL"))["groups"]
    ] == ["billing"]
    shown = await run("group show", group="kitchen")
    assert shown["queues"][0].lag == 5


async def test_a_group_is_deleted_after_it_was_said(kitchen, run, ahead) -> None:
    assert "For good" in (await ahead("group delete", group="kitchen")).sentences[0]
    await run("group delete", group="kitchen")
    with pytest.raises(GroupNotFound):
        await run("group show", group="kitchen")


async def test_a_reset_is_taken_back_after_it_was_said_what_that_does(
    kitchen, run, ahead, admin
) -> None:
    await run("group reset", group="kitchen", to="latest")
    told = await ahead("group undo", group="kitchen")
    assert told.sentences[0].startswith(
        "Group kitchen goes back to where it stood before 127.0.0.1:"
    )
    assert (list(told.rows), told.hindered) == ([("orders", 0, 5, 0, 5, 0)], "")
    assert (await run("group undo", group="kitchen")).moves[0].after == 0
    await run("group reset", group="kitchen", to="offset", value="2")
    await admin.set_offsets("kitchen", {QueueRef("orders", 0): 4})
    twice = "from 2 on 2 messages would be read twice"
    assert twice in (await ahead("group undo", group="kitchen")).hindered
    with pytest.raises(InvalidArgument, match=twice):
        await run("group undo", group="kitchen")


async def test_another_move_than_the_one_that_was_shown_is_not_taken_back(
    kitchen, run, ahead, admin
) -> None:
    await run("group reset", group="kitchen", to="latest")
    told = await ahead("group undo", group="kitchen")
    await run("group reset", group="kitchen", to="offset", value="2")
    with pytest.raises(InvalidArgument, match="moved once more since you looked"):
        await run("group undo", group="kitchen", **told.confirmed)
    now = (await admin.undo_reset("kitchen", dry_run=True)).moves[0]
    assert (now.before, now.after) == (2, 5)
