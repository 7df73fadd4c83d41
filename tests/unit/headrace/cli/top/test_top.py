"""`headrace top --once` as a script meets it."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace_mq.errors import ConnectionLost


def test_one_page_has_the_broker_and_tables(run, topic, broker_address) -> None:
    run("topic", "create", topic, "--queues", "2")
    run("message", "send", topic, "tea")
    done = run("top", "--once", "--every", "0.2", "--sort", "name", "--rows", "1000")
    assert done.status == 0
    lines = done.output.splitlines()
    assert lines[0].startswith(f"headrace top {broker_address}, over 0.")
    assert lines[1].startswith("in ")
    assert "takes messages: yes" in lines[3]
    (row,) = (one for one in done.rows if one[0] == topic)
    assert row[1:4] == ["2", "1", "0.0"]


def test_json_has_names_and_more_rows_are_counted(run, topic) -> None:
    for number in range(2):
        run("topic", "create", f"{topic}{number}", "--queues", "1")
    found = run("top", "--once", "--every", "0.2", "--json").json
    assert set(found) == {
        "seconds",
        "broker",
        "topics",
        "groups",
        "connections",
        "replicas",
        "denied",
    }
    assert f"{topic}1" in [one["topic"] for one in found["topics"]]
    assert found["broker"]["memory_bytes"] > 0
    assert "--rows shows more" in run("top", "--once", "--every", "0.2", "--rows", "1").output


def test_without_once_json_is_a_line_for_each_interval(broker_address) -> None:
    command = [
        sys.executable,
        "-m",
        "headrace",
        "top",
        "--json",
        "--every",
        "0.2",
        "--broker",
        broker_address,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    assert all(one["seconds"] > 0.1 for one in found)


def test_a_view_needs_a_terminal(run) -> None:
    done = run("top")
    assert done.status == 2
    assert "--once" in done.output


@pytest.mark.parametrize(
    "options", [["--sort", "size"], ["--every", "0"], ["--rows", "0"], ["--broker", "x"]]
)
def test_a_wrong_option_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(headrace.cli._command_line(), ["top", "--once", *options])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)


def test_without_a_broker_a_sentence_says_what_to_check(run, free_port: Callable[[], int]) -> None:
    done = run("top", "--once", "--broker", f"127.0.0.1:{free_port()}")
    assert isinstance(done.error, ConnectionLost)
    assert "check that it is running" in str(done.error)
