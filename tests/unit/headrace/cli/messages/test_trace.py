"""`headrace message trace` as an operator meets it, against a broker in a process of its own."""

import pytest
from typer.testing import CliRunner

import headrace.cli


@pytest.fixture(autouse=True)
def one_queue(run, topic) -> None:
    run("topic", "create", topic, "--queues", "1")


def test_a_message_is_followed_from_its_producer_to_its_end(run, topic) -> None:
    run("message", "send", topic, "a")
    message_id = f"{topic}:0:0"
    step = '{"kind":"acknowledged","at_ms":%d,"group":"g","client_id":"c","detail":"well"}'
    stored = run("message", "show", message_id, "--json").json["stored_at_ms"]
    run("message", "send", "%TRACE%", step % (stored + 5), "--key", message_id)
    run("group", "reset", f"of.{topic}", "--topic", topic, "--earliest")
    told = run("message", "trace", message_id, "--json").json
    assert told["message"]["body"] == "a"
    assert [one["kind"] for one in told["steps"]] == ["acknowledged"]
    assert [one["step"] for one in told["hops"]] == ["sent", "queued", "read"]
    assert told["stands"] == [3]
    rows = run("message", "trace", message_id).rows
    assert [row[0] for row in rows] == ["hop", "1", "2", "3"]
    assert "no consumer: " in " ".join(rows[-1])


def test_an_unknown_message_has_no_trace(run, topic) -> None:
    done = run("message", "trace", f"{topic}:0:7")
    assert done.status == 1
    assert f"there is no message {topic}:0:7, and no trace of it" in done.output
    assert run("message", "trace", "seven").status == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one thing to follow"),
        (["t:0:0", "--command", "c"], "name one thing to follow"),
        (["--command", "c"], "name the application"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(run, arguments, said) -> None:
    done = run("message", "trace", *arguments)
    assert (done.status, said in " ".join(done.output.split())) == (2, True)


def test_a_command_of_an_application_is_followed(broker_address, tmp_path) -> None:
    line, urls = headrace.cli._command_line(), list[str]()
    for name in ("event-store", "read-models"):
        url = f"sqlite:///{tmp_path}/{name}.db"
        urls += [f"--{name}", url]
        made = CliRunner().invoke(line, ["db", "upgrade", "--url", url])
        assert made.exit_code == 0, made.output
    asked = [
        "message",
        "trace",
        "--command",
        "c",
        "--app",
        "samples.bank:app",
        "--broker",
        broker_address,
    ]
    done = CliRunner().invoke(line, [*asked, *urls])
    assert (done.exit_code, "nothing is known of command c" in done.output) == (1, True)
