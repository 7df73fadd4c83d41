"""A rule knows how long it waits and where its page is."""

from headrace.alarms.rules.rule import AlarmRule


def test_a_rule_names_its_section_and_how_long_it_lasts() -> None:
    rule = AlarmRule("HeadraceX", "info", "5m", "up == 0", "x")
    assert rule.lasting_s == 300
    assert rule.runbook == "docs/alarms.md#headracex"


def test_a_rule_names_the_jobs_that_it_reads() -> None:
    found = {
        expression: AlarmRule("X", "info", "5m", expression, "x").jobs
        for expression in ("headrace_app_parked > 0", 'up{job="headrace-broker"} == 0', "up == 0")
    }
    assert list(found.values()) == [
        {"headrace-run"},
        {"headrace-broker"},
        {"headrace-run", "headrace-broker"},
    ]
