"""`headrace message dead|resend|purge` as an operator meets it, against a broker of its own process."""

from datetime import UTC, datetime, timedelta

import pytest


@pytest.fixture(autouse=True)
def letters(run, topic) -> None:
    """Three letters of a group that is called like the topic."""
    run("topic", "create", topic, "--queues", "1")
    run("topic", "create", f"%DLQ%{topic}", "--queues", "1")
    run("message", "send", f"%DLQ%{topic}", "--lines", typed=b"a\nb")
    origin = (
        '{"topic":"orders","queue_id":2,"offset":17,"born_at_ms":1,"attempt":3,"reason":"no",'
        '"back_to":"' + topic + '"}'
    )
    run("message", "send", f"%DLQ%{topic}", "c", "--header", f"%origin={origin}")


def test_dead_letters_are_listed_and_sent_again_by_id_or_all_at_once(run, topic) -> None:
    assert run("message", "dead", f"no.{topic}", "--json").json == []
    assert run("message", "dead", topic).rows[1:] == [
        ["0", "-", "-", "-", "-", "a"], ["1", "-", "-", "-", "-", "b"],
        ["2", "orders:2:17", "3", "no", "-", "c"],
    ]  # fmt: skip
    told = run("message", "dead", topic, "--from", "2", "--json").json
    assert [(one["id"], one["body"], one["origin"]["attempt"]) for one in told] == [(2, "c", 3)]
    assert told[0]["resent_at_ms"] is None
    assert run("message", "resend", topic, "2", "--json").json == [
        {"id": 2, "sent_as": f"{topic}:0:0", "error": ""}
    ]
    (marked,) = run("message", "dead", topic, "--from", "2").rows[1:]
    day = datetime.fromisoformat(marked[4])
    assert abs(datetime.now(UTC).replace(tzinfo=None) - day) < timedelta(minutes=5)
    assert run("message", "dead", topic, "--unsent").rows[1:] == [
        ["0", "-", "-", "-", "-", "a"], ["1", "-", "-", "-", "-", "b"],
    ]  # fmt: skip
    assert len(run("message", "dead", topic, "--all", "--json").json) == 3
    rows = run("message", "resend", topic, "--all", "--rate", "1000").rows
    assert [row[0] for row in rows] == ["id", "0", "1"]
    assert run("message", "resend", topic, "--all", "--json").json == []


@pytest.mark.parametrize(
    "given", [[], ["1", "--all"], ["1", "--rate", "5"], ["--all", "--rate", "0"]]
)
def test_resending_needs_ids_or_all_and_not_both(run, topic, given: list[str]) -> None:
    assert run("message", "resend", topic, *given).status == 2


def test_letters_are_taken_off_the_list(run, topic) -> None:
    assert run("message", "purge", topic).status == 2
    counted = run("message", "purge", topic, "--before", "2999-01-01", "--dry-run")
    assert counted.output == "3 letters would be purged\n"
    assert run("message", "purge", topic, "--resent").output == "0 letters purged\n"
    run("message", "resend", topic, "0")
    assert run("message", "purge", topic, "--resent", "--json").json == {
        "group": topic, "letters": 1, "purged": True,
    }  # fmt: skip
    assert run("message", "purge", topic, "--id", "2").output == "1 letters purged\n"
    assert run("message", "dead", topic).rows[1:] == [["1", "-", "-", "-", "-", "b"]]
    assert run("message", "purge", topic, "--before", "2001-01-01").output == "0 letters purged\n"
    assert run("message", "purge", topic, "--id", "7").error is not None
