"""Rules of this table name metrics of their own processes."""

from headrace.alarms.promql.evaluate import Expression
from headrace.alarms.rules.application import APPLICATION_RULES


def test_a_rule_of_the_() -> None:
    of = ("headrace_app_", "up")
    named = {name for rule in APPLICATION_RULES for name in Expression(rule.expression).reach_s}
    assert sorted(name for name in named if not name.startswith(of)) == []
    assert len({rule.name for rule in APPLICATION_RULES}) == len(APPLICATION_RULES)
