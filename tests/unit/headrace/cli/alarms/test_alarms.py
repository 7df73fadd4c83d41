"""`headrace alarms` as a person calls it."""

import json

from typer.testing import CliRunner, Result

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
