"""`headrace alarms` as a person calls it."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.alarms.board import RaisedAlarm
from headrace.alarms.folder import AlarmFolder, WatcherState
from headrace.alarms.rules.table import RULES, for_prometheus
from headrace.cli import _command_line


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["alarms", *arguments])


def test_the_rules_are_listed_with_their_pages() -> None:
    listed = headrace("list")
    assert listed.exit_code == 0
    lines = [line.split() for line in listed.stdout.splitlines()]
    assert [
        "HeadraceBrokerDown",
        "critical",
        "1m",
        "docs/alarms.md#headracebrokerdown",
    ] in lines
    rules = json.loads(headrace("list", "--json").stdout)["rules"]
    assert [one["name"] for one in rules] == list(RULES)


def test_the_rules_are_printed_for_prometheus() -> None:
    assert headrace("prometheus").stdout == for_prometheus()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "alarms.toml"
    file.write_text(
        f'folder = "{tmp_path}/alarms"\n[[target]]\nurl = "http://127.0.0.1:1/metrics"\n'
        '[[webhook]]\nname = "duty"\nurl = "http://127.0.0.1:1/"\n'
    )
    return file


def test_a_silence_is_made_listed_and_ended(file: Path) -> None:
    of = ("--alarms", str(file))
    made = headrace(
        "silence", "HeadraceDamage", "--for", "2h", "--why", "a new disk", "--label", "instance=a", *of
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    (one,) = json.loads(headrace("silences", "--json", *of).stdout)
    assert (one["alarm"], one["why"], one["labels"]) == (
        "HeadraceDamage", "a new disk", {"instance": "a"},
    )  # fmt: skip
    assert made.stdout.startswith(f"{one['id']}: HeadraceDamage is silent until")
    assert "a new disk" in headrace("silences", *of).stdout
    assert "silent no more" in headrace("unsilence", one["id"], *of).stdout
    assert json.loads(headrace("silences", "--json", *of).stdout) == []


def test_a_list_with_a_folder_has_what_fires_and_a_status_for_scripts(
    file: Path, tmp_path: Path
) -> None:
    of = ("--alarms", str(file))
    assert "start headrace alarms watch" in headrace("list", *of).stdout
    labels = {"instance": "a:1"}
    one = RaisedAlarm("HeadraceDamage", "critical", labels, 1.0, "1 damaged place", 1.0, 1.0)
    folder = AlarmFolder(tmp_path / "alarms")
    folder.keep(WatcherState(looked_s=time.time(), every_s=1_000, alarms=(one,)))
    listed = headrace("list", *of)
    assert (listed.exit_code, "1 damaged place" in listed.stdout) == (1, True)
    assert json.loads(headrace("list", "--json", *of).stdout)["firing"][0]["labels"] == labels
    headrace("silence", "HeadraceDamage", "--for", "2h", "--why", "known", *of)
    assert headrace("list", *of).exit_code == 0


def test_a_test_that_a_receiver_does_not_take_ends_with_a_status(file: Path) -> None:
    tested = headrace("test", "HeadraceDamage", "--alarms", str(file))
    assert (tested.exit_code, "duty: " in tested.stdout) == (1, True)
    assert "refused" in tested.stdout


def test_a_test_without_receivers_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "alarms.toml"
    file.write_text('[[target]]\nurl = "http://127.0.0.1:1/metrics"\n')
    tested = headrace("test", "HeadraceDamage", "--alarms", str(file))
    assert (tested.exit_code, "names no webhook" in tested.output) == (2, True)


def test_a_label_without_a_value_is_a_sentence(file: Path) -> None:
    made = headrace(
        "silence", "HeadraceDamage", "--for", "2h", "--why", "x", "--label", "a", "--alarms", str(file)
    )  # fmt: skip
    assert (made.exit_code, "write NAME=VALUE" in made.output) == (2, True)
