"""`headrace topic` as an operator meets it, against a broker in a process of its own."""

import pytest

from headrace_mq.errors import InvalidArgument, TopicExists, TopicInUse, TopicNotFound

NOTHING = {"messages_1s": 0, "bytes_1s": 0, "messages_10s": 0, "bytes_10s": 0}


def test_a_topic_is_created_listed_and_grown(run, topic) -> None:
    assert run("topic", "create", topic, "--queues", "2", "--forever").output == (
        f"topic {topic} has 2 queues\n"
    )
    listed = run("topic", "list")
    assert listed.rows[0] == ["topic", "queues", "kept", "messages", "in/s", "out/s", "frozen"]
    assert [topic, "2", "forever", "0", "0", "0", "-"] in listed.rows
    assert run("topic", "add-queues", topic, "--to", "5").output == f"topic {topic} has 5 queues\n"
    (one,) = [one for one in run("topic", "list", "--json").json if one["topic"] == topic]
    assert one == {
        "topic": topic, "queues": 5, "retention": "forever", "messages": 0,
        "unwritable": [], "unreadable": [], "produced": NOTHING, "fetched": NOTHING,
    }  # fmt: skip


def test_the_queues_of_a_topic_are_shown(run, topic) -> None:
    run("topic", "create", topic, "--queues", "2")
    run("topic", "freeze", topic, "--queue", "1", "--writing", "--reading")
    shown = run("topic", "show", topic)
    assert shown.rows[1:] == [
        ["0", "0", "0", "0", "-", "-", "0", "0", "-"],
        ["1", "0", "0", "0", "-", "-", "0", "0", "writing, reading"],
        [f"topic {topic} is kept transient"],
    ]
    told = run("topic", "show", topic, "--json").json
    assert (told["topic"], told["retention"]) == (topic, "transient")
    assert told["queues"][1] == {
        "topic": topic, "queue_id": 1, "first": 0, "end": 0, "writable": False, "readable": False,
        "first_stored_at_ms": 0, "last_stored_at_ms": 0, "produced": NOTHING, "fetched": NOTHING,
    }  # fmt: skip


def test_queues_are_frozen_and_thawed_by_side(run, topic) -> None:
    run("topic", "create", topic, "--queues", "3")
    assert (
        "frozen for writing: 0 2"
        in run("topic", "freeze", topic, "--queue", "0", "--queue", "2", "--writing").output
    )
    assert "writing: 0 2, reading: 0 1 2" in run("topic", "freeze", topic, "--reading").output
    assert (
        "frozen for writing: 0 2, reading: 0 2"
        in run("topic", "thaw", topic, "--queue", "1", "--reading").output
    )
    assert "nothing is frozen" in run("topic", "thaw", topic).output


def test_freezing_needs_a_side(run, topic) -> None:
    run("topic", "create", topic)
    done = run("topic", "freeze", topic)
    assert (done.status, "--reading" in done.output) == (2, True)


def test_a_topic_is_deleted_after_a_dry_run_has_nothing_to_say(run, topic) -> None:
    run("topic", "create", topic, "--queues", "3")
    would = run("topic", "delete", topic, "--keep", "2", "--dry-run")
    assert would.status == 1
    assert "takes messages: freeze it for writing" in would.output
    assert "cannot go yet" in would.output
    assert isinstance(run("topic", "delete", topic).error, TopicInUse)
    run("topic", "freeze", topic, "--writing", "--reading")
    would = run("topic", "delete", topic, "--dry-run", "--json")
    assert would.status == 0
    assert would.json["deleted"] is False
    assert [queue["obstacles"] for queue in would.json["queues"]] == [[], [], []]
    assert "without --dry-run" in run("topic", "delete", topic, "--dry-run").output
    assert run("topic", "delete", topic, "--keep", "1").output.startswith("deleted: queues from 1")
    assert run("topic", "delete", topic).output == f"deleted: topic {topic} with 0 messages\n"
    assert topic not in run("topic", "list").output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["show"], TopicNotFound),
        (["freeze", "--writing"], TopicNotFound),
        (["delete"], TopicNotFound),
        (["add-queues", "--to", "3"], TopicNotFound),
    ],
)
def test_a_topic_that_is_not_there_is_a_mistake(run, topic, arguments, error) -> None:
    done = run("topic", arguments[0], topic, *arguments[1:])
    assert isinstance(done.error, error)


def test_settings_that_do_not_fit_are_mistakes(run, topic) -> None:
    run("topic", "create", topic)
    assert isinstance(run("topic", "create", topic, "--forever").error, TopicExists)
    assert isinstance(run("topic", "delete", topic, "--keep", "9").error, InvalidArgument)


def test_a_topic_is_spread_over_the_groups_of_an_address(
    monkeypatch: pytest.MonkeyPatch, run, topic
) -> None:
    asked: list[tuple[object, ...]] = []

    async def spread_topic(*arguments: object, **more: object) -> dict[str, list[int]]:
        asked.append((*arguments, more))
        return {"g1": [0, 1, 2, 8], "g2": [3]}

    monkeypatch.setattr("headrace_mq.admin.spread.division.spread_topic", spread_topic)
    done = run("topic", "spread", topic, "--queues", "9", "--forever", "--resume")
    assert done.output == (
        f"topic {topic}: group g1 has queues 0-2, 8\ntopic {topic}: group g2 has queues 3\n"
    )
    assert asked[0][1:] == (topic, 9, {"retention": "forever", "resume": True})


def test_a_compacted_topic_is_spread_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, run, topic
) -> None:
    asked: list[object] = []

    async def spread_topic(*_: object, **more: object) -> dict[str, list[int]]:
        asked.append(more["retention"])
        return {}

    monkeypatch.setattr("headrace_mq.admin.spread.division.spread_topic", spread_topic)
    run("topic", "spread", topic, "--queues", "8", "--compact")
    assert asked == ["compact"]
    done = run("topic", "spread", topic, "--queues", "8", "--compact", "--forever")
    assert (done.status, "not both" in done.output, asked) == (2, True, ["compact"])


def test_a_topic_is_spread_where_the_address_names_groups_alone(run, topic) -> None:
    done = run("topic", "spread", topic, "--queues", "8")
    assert (done.status, "name the groups" in done.output) == (2, True)


def test_list_shows_the_rates_of_each_topic(run, topic) -> None:
    run("topic", "create", topic, "--queues", "2")
    run("message", "send", topic, "--lines", typed=b"a\nb\nc")

    def counted() -> int:
        (one,) = [one for one in run("topic", "list", "--json").json if one["topic"] == topic]
        assert one["messages"] == 3
        return one["produced"]["messages_10s"]

    # It is told as soon as the second is over, for ten seconds.
    while not counted():
        pass
    assert counted() == 3
    (row,) = [row for row in run("topic", "list").rows if row[0] == topic]
    assert row[3:5] == ["3", "1"]
