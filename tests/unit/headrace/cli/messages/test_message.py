"""`headrace message` as an operator meets it, against a broker in a process of its own."""

import os
import signal
import subprocess
import sys

import pytest

from headrace_mq.errors import InvalidArgument, QueueNotFound, TopicNotFound


@pytest.fixture(autouse=True)
def one_queue(run, topic) -> None:
    run("topic", "create", topic, "--queues", "1")


def test_a_message_is_sent_and_shown(run, topic) -> None:
    sent = run("message", "send", topic, "hällo", "--key", "k", "--tag", "a", "--header", "n=v=w")
    assert sent.output == f"{topic}:0:0\n"
    shown = run("message", "show", f"{topic}:0:0")
    assert shown.rows[:4] == [
        ["id", f"{topic}:0:0"], ["key", "k"], ["tag", "a"], ["header n", "v=w"],
    ]  # fmt: skip
    assert shown.rows[-2:] == [["bytes", "6"], ["hällo"]]
    assert [row[0] for row in shown.rows[6:8]] == ["sent from", "sent by"]
    assert shown.rows[6][1].startswith("127.0.0.1:")
    told = run("message", "show", f"{topic}:0:0", "--json").json
    sender = told.pop("sender")
    assert sender.pop("producer_id") == told.pop("producer_id") > 1
    assert sender["address"] == shown.rows[6][1]
    assert shown.rows[7][1] == f"{sender['client_id']} ({sender['software']})"
    assert 0 < told.pop("born_at_ms") <= told.pop("stored_at_ms")
    assert told == {
        "id": f"{topic}:0:0", "topic": topic, "queue_id": 0, "offset": 0, "key": "k", "tag": "a",
        "headers": {"n": "v=w"}, "bytes": 6, "body": "hällo", "body_base64": "aMOkbGxv",
            "hidden": "",
    }  # fmt: skip


def test_bodies_come_from_standard_input(run, topic) -> None:
    assert run("message", "send", topic, typed=b"a\nb\n").output == f"{topic}:0:0\n"
    assert run("message", "show", f"{topic}:0:0", "--json").json["body"] == "a\nb\n"
    done = run("message", "send", topic, "--lines", "--json", typed=b"c\nd\r\ne")
    assert done.json == [f"{topic}:0:{offset}" for offset in (1, 2, 3)]
    assert [row[-1] for row in run("message", "tail", topic, "-n", "3").rows[1:]] == ["c", "d", "e"]


def test_a_body_that_is_no_text_is_shown_in_hexadecimal_without_control_characters(
    run, topic
) -> None:
    run("message", "send", topic, typed=b"\xff\x00")
    run("message", "send", topic, "--key", "\x1b[2J", typed=b"\x1b[2J")
    run("message", "send", topic, typed="ä".encode() * 500)
    tail = run("message", "tail", topic)
    assert "\x1b" not in tail.output
    assert [row[-1] for row in tail.rows[1:]] == ["ff 00", "1b 5b 32 4a", "ä" * 59 + "…"]
    assert run("message", "show", f"{topic}:0:0").rows[-1] == ["ff 00"]
    assert "\x1b" not in run("message", "show", f"{topic}:0:1").output
    told = run("message", "show", f"{topic}:0:0", "--json").json
    assert (told["body"], told["body_base64"]) == (None, "/wA=")


def test_a_group_goes_on_behind_a_message_at_which_it_stands(run, topic) -> None:
    for body in ("one", "two", "three"):
        run("message", "send", topic, body)
    group = f"group.{topic}"
    run("group", "reset", group, "--topic", topic, "--offset", "1")
    for elsewhere in (0, 2):
        refused = run("message", "skip", f"{topic}:0:{elsewhere}", "--group", group)
        assert isinstance(refused.error, InvalidArgument)
        assert f"stands at offset 1 in {topic}/0, not at {topic}:0:{elsewhere}" in str(
            refused.error
        )
    shown = run("message", "skip", f"{topic}:0:1", "--group", group, "--dry-run")
    assert shown.rows[1] == [topic, "0", "1", "2", "0", "1"]
    done = run("message", "skip", f"{topic}:0:1", "--group", group, "--json").json
    assert (done["moved"], done["moves"][0]["after"], done["moves"][0]["skipped"]) == (True, 2, 1)
    assert run("message", "skip", f"{topic}:0:9", "--group", group).status == 1
    assert run("message", "skip", "seven", "--group", group).status == 2


def test_messages_are_found_by_key_and_time(run, topic) -> None:
    for number in range(4):
        run("message", "send", topic, str(number), "--key", f"k{number % 2}")
    found = run("message", "find", topic, "k1")
    assert found.rows[0] == ["id", "stored (UTC)", "key", "tag", "sent from", "body"]
    assert [row[-1] for row in found.rows[1:]] == ["1", "3"]
    assert all(row[-2].startswith("127.0.0.1:") for row in found.rows[1:])
    told = run("message", "find", topic, "k0", "--limit", "1", "--json").json
    assert [one["body"] for one in told] == ["0"]
    assert told[0]["sender"]["producer_id"] == told[0]["producer_id"]
    assert run("message", "find", topic, "k0", "--from", "2999-01-01", "--json").json == []
    assert run("message", "find", topic, "k0", "--to", "1", "--json").json == []


def test_the_tail_is_one_object_a_line_for_programs(run, topic) -> None:
    run("message", "send", topic, "--lines", typed=b"a\nb\nc")
    lines = run("message", "tail", topic, "--last", "2", "--queue", "0", "--json").output
    assert [line[:20] for line in lines.splitlines()] == ['{"id":"' + topic[:13]] * 2
    assert '"body":"c"' in lines.splitlines()[1]


def test_a_topic_is_searched_by_a_filter(run, topic) -> None:
    run("message", "send", topic, "--lines", "--tag", "hot", typed=b'{"n": 1}\n{"n": 2}\n{"n": 3}')
    found = run("message", "search", topic, "_tag = 'hot' AND body.n > 1")
    assert [row[-1] for row in found.rows[1:3]] == ['{"n": 2}', '{"n": 3}']
    assert "searched 3 of 3 messages" in found.output
    first = run("message", "search", topic, "body.n > 1", "--limit", "1", "--json").json
    assert (first["searched"], first["of"], first["next"]) == (2, 3, "0:2")
    told = run("message", "search", topic, "body.n > 1", "--limit", "1").output
    assert "go on with --after 0:2" in told
    rest = run("message", "search", topic, "body.n > 1", "--after", "0:2", "--json").json
    assert ([one["body"] for one in rest["messages"]], rest["next"]) == (['{"n": 3}'], None)
    tail = run("message", "tail", topic, "--filter", "body.n = 2", "--json").output
    assert tail.count('"id"') == 1
    told = run("message", "tail", topic, "--filter", "body.n = 2").output
    assert "searched 3 of 3 messages, the newest of each queue" in told
    wrong = run("message", "search", topic, "body.n >")
    assert (wrong.status, "column 9" in wrong.output) == (2, True)
    wrong = run("message", "search", topic, "body.n > 1", "--after", "here")
    assert (wrong.status, "queue:offset" in wrong.output) == (2, True)


def test_following_a_topic_shows_new_messages_until_interrupted(run, topic, broker_address) -> None:
    run("message", "send", topic, "before")
    command = [sys.executable, "-m", "headrace", "message", "tail", topic, "--follow"]
    environment = os.environ | {"HEADRACE_BROKER": broker_address}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("before\n")
        run("message", "send", topic, "later")
        assert process.stdout.readline().endswith("later\n")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def test_a_message_that_is_not_there_is_status_1(run, topic) -> None:
    done = run("message", "show", f"{topic}:0:5")
    assert (done.status, "there is no message" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "nonsense"], "orders:3:1042"),
        (["tail", "TOPIC", "--last", "-1"], "count is 0 to"),
        (["find", "TOPIC", "k", "--limit", "0"], "limit is 1 to"),
        (["find", "TOPIC", "k", "--from", "soon"], "is no time"),
        (["send", "TOPIC", "x", "--header", "novalue"], "NAME=VALUE"),
        (["send", "TOPIC", "x", "--lines"], "give no BODY"),
        (["send", "TOPIC", "x", "--key", "k" * 2_000], "a key has at most"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(run, topic, arguments, told) -> None:
    done = run("message", *(topic if one == "TOPIC" else one for one in arguments))
    assert (done.status, told in " ".join(done.output.split())) == (2, True)


def test_a_missing_topic_or_queue_is_a_mistake(run, topic) -> None:
    assert isinstance(run("message", "tail", f"no.{topic}").error, TopicNotFound)
    assert isinstance(run("message", "tail", topic, "--queue", "7").error, QueueNotFound)
    assert isinstance(run("message", "show", f"no.{topic}:0:0").error, QueueNotFound)


def test_messages_of_a_queue_are_listed_from_an_offset_or_a_time_on(run, topic) -> None:
    for body in ("a", "b", "c"):
        run("message", "send", topic, body)
    listed = run("message", "list", topic, "--offset", "1", "--json").json
    assert [one["body"] for one in listed] == ["b", "c"]
    done = run("message", "list", topic, "--from", "2000-01-01", "--limit", "1")
    assert [row[-1] for row in done.rows[1:] if row[0].startswith(topic)] == ["a"]
    assert run("message", "list", topic).status == 2
    assert run("message", "list", topic, "--offset", "0", "--limit", "0").status == 2
