"""
What a person sees of the alarms: all rules, which of them hold now, and silences.

Used by `headrace alarms list` and by the console; reads the folder of a watcher.
"""

from typing import Any, Final

from headrace.alarms.board import RaisedAlarm
from headrace.alarms.folder import AlarmFolder, Silence, WatcherState
from headrace.alarms.rules.table import RULES

__all__ = ["overview"]

# A watcher that has not looked for so many rounds is away.
_ROUNDS_MAX: Final = 4


def overview(folder: AlarmFolder, now_s: float) -> dict[str, Any]:
    """Returns the alarms with names for programs.

    Args:
        folder: of the watcher.
        now_s: the time, in seconds since 1970.

    Raises:
        HeadraceError: a file of the folder cannot be read.
    """
    state, silences = folder.state(), folder.silences(now_s)
    firing = [_row(one, silences) for one in state.alarms if one.fired_s]
    waiting = [_row(one, silences) for one in state.alarms if not one.fired_s]
    return {
        "trouble": _trouble(state, now_s),
        "looked_ms": round(state.looked_s * 1_000),
        "firing": firing,
        "waiting": waiting,
        "rules": [
            {
                "alarm": rule.name,
                "severity": rule.severity,
                "after": rule.lasting,
                "expression": rule.expression,
                "runbook": rule.runbook,
                "firing": sum(one["alarm"] == rule.name for one in firing),
            }
            for rule in RULES.values()
        ],
        "silences": silence_rows(silences),
        "targets": list(state.targets),
        "receivers": [
            {"receiver": name, "failures": one.failures, "sentence": one.sentence}
            for name, one in state.receivers.items()
        ],
    }


def silence_rows(silences: list[Silence]) -> list[dict[str, Any]]:
    """Returns silences with names for programs; times are in milliseconds since 1970."""
    return [
        {
            "id": one.id,
            "alarm": one.rule,
            "labels": one.labels,
            "until_ms": round(one.until_s * 1_000),
            "why": one.why,
            "by": one.by,
            "made_ms": round(one.made_s * 1_000),
        }
        for one in silences
    ]


def _row(alarm: RaisedAlarm, silences: list[Silence]) -> dict[str, Any]:
    covering = next((one for one in silences if one.covers(alarm)), None)
    return {
        "alarm": alarm.rule,
        "severity": alarm.severity,
        "summary": alarm.summary,
        "labels": alarm.labels,
        "value": alarm.value,
        "since_ms": round(alarm.since_s * 1_000),
        "runbook": RULES[alarm.rule].runbook if alarm.rule in RULES else "",
        "silence": covering.id if covering else "",
    }


def _trouble(state: WatcherState, now_s: float) -> str:
    if not state.looked_s:
        return "nothing has watched yet; start headrace alarms watch"
    if now_s - state.looked_s > _ROUNDS_MAX * state.every_s:
        return (
            f"nothing has watched for {now_s - state.looked_s:,.0f} s; start headrace alarms watch"
        )
    away = [one.instance for one in state.targets if not one.up]
    if away:
        return f"no figures come from {', '.join(away)}"
    failing = [name for name, one in state.receivers.items() if one.failures]
    return f"messages are not taken by {', '.join(failing)}" if failing else ""
