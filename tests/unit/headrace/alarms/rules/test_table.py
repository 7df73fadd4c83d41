"""The table of rules is the file for Prometheus, and all of it can be evaluated here."""

from pathlib import Path

import pytest
import yaml

from headrace.alarms.promql.evaluate import Expression
from headrace.alarms.rules.rule import SEVERITIES
from headrace.alarms.rules.table import GROUPS, RULES, for_prometheus, rule_of
from headrace.errors import HeadraceError

FILE = Path(__file__).parents[5] / "deploy" / "prometheus" / "alerts.yml"


def test_the_file_for_prometheus_is_made_of_the_table() -> None:
    assert FILE.read_text(encoding="utf-8") == for_prometheus(), "run: headrace alarms prometheus"


def test_the_file_for_prometheus_says_the_same_as_the_table() -> None:
    groups = yaml.safe_load(for_prometheus())["groups"]
    assert [group["name"] for group in groups] == list(GROUPS)
    for group in groups:
        for said, rule in zip(group["rules"], GROUPS[group["name"]], strict=True):
            assert said["alert"] == rule.name
            assert said["expr"] == rule.expression
            assert said.get("for", "0s") == rule.lasting
            assert said["labels"] == {"severity": rule.severity}
            assert said["annotations"] == {"summary": rule.summary, "runbook": rule.runbook}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_can_be_evaluated_here(name: str) -> None:
    assert Expression(RULES[name].expression).reach_s
    assert RULES[name].severity in SEVERITIES


def test_a_name_that_is_no_rule_is_a_sentence() -> None:
    assert rule_of("HeadraceBrokerDown") is RULES["HeadraceBrokerDown"]
    with pytest.raises(HeadraceError, match="there is no alarm 'Fire'; `headrace alarms list`"):
        rule_of("Fire")
