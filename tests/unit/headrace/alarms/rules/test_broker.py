"""Rules of this table name metrics of their own processes."""

from headrace.alarms.promql.evaluate import Expression
from headrace.alarms.rules.broker import BROKER_RULES, CLUSTER_RULES, NAMESERVER_RULES


def test_a_rule_of_the_() -> None:
    of = ("headrace_broker_", "process_", "up")
    named = {
        name
        for rule in (*BROKER_RULES, *CLUSTER_RULES)
        for name in Expression(rule.expression).reach_s
    }
    assert sorted(name for name in named if not name.startswith(of)) == []
    assert len({rule.name for rule in (*BROKER_RULES, *CLUSTER_RULES)}) == len(BROKER_RULES) + len(
        CLUSTER_RULES
    )


def test_a_name_server_is_known_by_its_job() -> None:
    assert [rule.expression for rule in NAMESERVER_RULES] == ['up{job="headrace-nameserver"} == 0']
