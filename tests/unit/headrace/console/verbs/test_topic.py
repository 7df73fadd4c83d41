"""Verbs about topics."""

import pytest

from headrace_mq.errors import TopicNotFound


async def test_a_topic_lives_from_its_creation_to_its_end(run, ahead) -> None:
    assert "usual number of queues" in (await ahead("topic create", topic="orders")).sentences[0]
    await run("topic create", topic="orders", queues=2, retention="forever")
    assert (await ahead("topic create", topic="orders")).hindered
    assert (
        "3 queues in place of 2"
        in (await ahead("topic add-queues", topic="orders", to=3)).sentences[0]
    )
    await run("topic add-queues", topic="orders", to=3)
    assert (await ahead("topic delete", topic="orders")).hindered
    assert (await ahead("topic freeze", topic="orders")).hindered
    told = await ahead("topic freeze", topic="orders", writing=True, reading=True)
    assert "all 3" in told.sentences[0]
    frozen = await run("topic freeze", topic="orders", writing=True, reading=True)
    assert frozen.unwritable == [0, 1, 2]
    told = (await ahead("topic thaw", topic="orders")).sentences
    assert told[1:] == (
        "Queues that are open again for writing: 0, 1, 2.",
        "Queues that are open again for reading: 0, 1, 2.",
    )
    assert (await run("topic thaw", topic="orders", queue="0")).unreadable == [1, 2]
    await run("topic freeze", topic="orders", writing=True, reading=True)
    looked = await ahead("topic delete", topic="orders")
    assert (looked.hindered, looked.sentences[0][:8]) == ("", "For good")
    await run("topic delete", topic="orders")
    with pytest.raises(TopicNotFound):
        await run("topic show", topic="orders")


async def test_a_thaw_says_what_is_open_again_and_what_stays_frozen(run, ahead) -> None:
    await run("topic create", topic="orders", queues=3)
    await run("topic freeze", topic="orders", queue="0,2", writing=True, reading=True)
    told = (await ahead("topic thaw", topic="orders", queue="0,1", writing=True)).sentences
    assert told[1:] == (
        "Queues that are open again for writing: 0.",
        "Queues that stay frozen for writing: 2.",
        "Queues that stay frozen for reading: 0, 2.",
    )
    thawed = await run("topic thaw", topic="orders", queue="0,1", writing=True)
    assert (thawed.unwritable, thawed.unreadable) == ([2], [0, 2])
    looked = await ahead("topic thaw", topic="orders", queue="1")
    assert looked.hindered == "none of these queues is frozen for that"


async def test_a_page_of_topics_hides_those_of_the_system(run, admin) -> None:
    for name in ("b", "a", "%DLQ%kitchen"):
        await admin.create_topic(name, 1)
    found = await run("topic list")
    assert [one["topic"] for one in found["topics"]] == ["a", "b"]
    assert (found["hidden"], found["total"]) == (1, 2)
    found = await run("topic list", system=True, search="dlq", page=9)
    assert [one["topic"] for one in found["topics"]] == ["%DLQ%kitchen"]
    assert (found["page"], found["pages"]) == (1, 1)


async def test_a_topic_tells_which_groups_are_behind(run, admin) -> None:
    await admin.create_topic("orders", 1)
    await admin.create_topic("bills", 1)
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    found = await run("topic show", topic="orders")
    assert [(one["group"], one["lag"], one["commits"]) for one in found["groups"]] == [
        ("kitchen", 0, True)
    ]
    assert (await run("topic show", topic="bills"))["groups"] == []
