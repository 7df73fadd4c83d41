"""
All rules by their names, and the file for Prometheus that is made of them. PURE.

    headrace alarms prometheus > deploy/prometheus/alerts.yml

Used by the watcher and the command line.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from headrace.alarms.rules.application import APPLICATION_RULES
from headrace.alarms.rules.broker import BROKER_RULES, CLUSTER_RULES, NAMESERVER_RULES
from headrace.alarms.rules.rule import PAGE, AlarmRule
from headrace.errors import HeadraceError

__all__ = ["GROUPS", "RULES", "for_prometheus", "rule_of"]

# In the order of the page.
GROUPS: Final[Mapping[str, tuple[AlarmRule, ...]]] = MappingProxyType(
    {
        "headrace-broker": BROKER_RULES,
        "headrace-cluster": CLUSTER_RULES,
        "headrace-nameserver": NAMESERVER_RULES,
        "headrace-application": APPLICATION_RULES,
    }
)
RULES: Final[Mapping[str, AlarmRule]] = MappingProxyType(
    {rule.name: rule for rules in GROUPS.values() for rule in rules}
)
_HEAD: Final = f"""\
# Alerts for Prometheus: name this file under `rule_files`. The jobs are called headrace-broker, headrace-nameserver and
# headrace-run, as in docs/metrics.md; {PAGE} says what each alert means and what to do. `headrace alarms prometheus`
# writes this file.
groups:"""
_COLUMNS: Final = 120


def rule_of(name: str) -> AlarmRule:
    """Returns the rule of a name.

    Raises:
        HeadraceError: there is none.
    """
    found = RULES.get(name)
    if found is None:
        raise HeadraceError(f"there is no alarm {name[:80]!r}; `headrace alarms list` lists all")
    return found


def for_prometheus() -> str:
    """Returns the rules as a file of Prometheus, in YAML."""
    return "\n".join([_HEAD, *_lines(), ""])


def _lines() -> Iterator[str]:
    for group, rules in GROUPS.items():
        yield f"  - name: {group}"
        yield "    rules:"
        for rule in rules:
            yield f"      - alert: {rule.name}"
            yield "        expr: >-"
            yield from textwrap.wrap(
                rule.expression,
                _COLUMNS,
                initial_indent=" " * 10,
                subsequent_indent=" " * 10,
                break_long_words=False,
                break_on_hyphens=False,
            )
            if rule.lasting_s:
                yield f"        for: {rule.lasting}"
            yield "        labels:"
            yield f"          severity: {rule.severity}"
            yield "        annotations:"
            yield f"          summary: {json.dumps(rule.summary)}"
            yield f"          runbook: {rule.runbook}"
