"""
What a rule is. PURE.

    name HeadraceBrokerDown · severity critical · for 1m · expression up{…} == 0 · summary of what happened

Used by the tables of rules.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from headrace.alarms.promql.parse import duration_s

__all__ = ["PAGE", "SEVERITIES", "AlarmRule"]

Severity = Literal["critical", "warning", "info"]
# The worst first.
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")
# Where each rule has a section that says what it means and what to do.
PAGE: Final = "docs/alarms.md"
# What the expressions of a rule about a job name.
_JOBS: Final[Mapping[str, str]] = {
    "headrace_broker_": "headrace-broker",
    'job="headrace-broker"': "headrace-broker",
    "headrace_app_": "headrace-run",
    'job="headrace-run"': "headrace-run",
}


class AlarmRule(NamedTuple):
    """When something is wrong.

    Attributes:
        name: its heading in `docs/alarms.md`.
        severity: `critical`: something does not work now; `warning`: it soon may not; `info`: a person decided it.
        lasting: how long the expression must hold, such as `5m`.
        expression: in PromQL; each series of its result is an alarm.
        summary: one sentence, with `{{ $labels.NAME }}` and `{{ $value }}`.
        over: in PromQL; alarms with all labels of a series of its result are over, also if a process that they are
            about does not answer. Empty: such alarms wait for it.
    """

    name: str
    severity: Severity
    lasting: str
    expression: str
    summary: str
    over: str = ""

    @property
    def lasting_s(self) -> float:
        """How long the expression must hold, in seconds."""
        return duration_s(self.lasting)

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs whose figures it reads; one that names none reads all."""
        found = {job for mark, job in _JOBS.items() if mark in self.expression}
        return frozenset(found or _JOBS.values())

    @property
    def runbook(self) -> str:
        """The page and section that say what to do."""
        return f"{PAGE}#{self.name.lower()}"
