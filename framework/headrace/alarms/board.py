"""
Which alarms there are: each waits until it has lasted long enough, then it fires until its series is gone. PURE.

    series holds ─▶ pending ─ `lasting` ─▶ firing ─ series gone ─▶ off the board

Used by the watcher, which is its only owner.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from headrace.alarms.promql.evaluate import Vector
from headrace.alarms.rules.rule import SEVERITIES, AlarmRule
from headrace.alarms.rules.summary import filled

__all__ = ["AlarmBoard", "RaisedAlarm"]


class RaisedAlarm(msgspec.Struct, frozen=True):
    """A series for which a rule holds.

    Attributes:
        rule: its name.
        severity: of the rule.
        labels: of the series.
        value: of the expression.
        summary: what happened.
        since_s: since when it holds, in seconds since 1970.
        fired_s: since when it is an alarm; 0: it has not lasted long enough.
    """

    rule: str
    severity: str
    labels: dict[str, str]
    value: float
    summary: str
    since_s: float
    fired_s: float = 0.0

    @property
    def key(self) -> str:
        """What tells it from all others."""
        held = ",".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return f"{self.rule}{{{held}}}"


class AlarmBoard:
    """The alarms of a watcher.

    Args:
        rules: by name.
        kept: alarms of an earlier process.
        alarms_max: at most so many.

    Attributes:
        left_out: series of the last look for which there was no room.
    """

    def __init__(
        self, rules: Mapping[str, AlarmRule], kept: Iterable[RaisedAlarm], alarms_max: int
    ) -> None:
        self._rules = rules
        self._alarms_max = alarms_max
        self._alarms = {one.key: one for one in kept if one.rule in rules}
        self._earlier = set(self._alarms)
        self.left_out = 0

    @property
    def alarms(self) -> list[RaisedAlarm]:
        """Those that wait and those that fire, the worst and oldest first."""
        order: dict[str, int] = {name: place for place, name in enumerate(SEVERITIES)}
        return sorted(
            self._alarms.values(), key=lambda one: (order[one.severity], one.since_s, one.key)
        )

    @property
    def firing(self) -> list[RaisedAlarm]:
        """Those that have lasted long enough."""
        return [one for one in self.alarms if one.fired_s]

    def update(
        self,
        now_s: float,
        found: Mapping[str, Vector],
        *,
        silent: Collection[str] = (),
        partial: Collection[str] = (),
        over: Mapping[str, Vector] | None = None,
        unknown: Collection[str] = (),
        reaching: Collection[str] = (),
    ) -> None:
        """Takes in what holds now.

        Args:
            now_s: the time, in seconds since 1970.
            found: the series for which each rule holds, by its name.
            silent: instances that do not answer; their alarms stay as they were.
            partial: rules that read a process that does not answer; their alarms without `instance` stay.
            over: series by the name of a rule; its alarms with all of the labels of one do not stay.
            unknown: rules that could not be evaluated; all of their alarms stay.
            reaching: rules that look further back than this process does; alarms of an earlier process stay.
        """
        self.left_out = 0
        holding = set()
        for name, vector in found.items():
            for labels, value in vector.items():
                if value == value:
                    holding.add(self._hold(self._rules[name], dict(labels), value, now_s))
        for key in self._alarms.keys() - holding:
            one = self._alarms[key]
            instance = one.labels.get("instance")
            ended = any(one.labels.items() >= set(each) for each in (over or {}).get(one.rule, ()))
            stays = (
                one.rule in unknown
                or (not ended and (one.rule in partial if instance is None else instance in silent))
                or (key in self._earlier and one.rule in reaching)
            )
            if not stays:
                del self._alarms[key]
        self._earlier &= self._alarms.keys()

    def _hold(self, rule: AlarmRule, labels: dict[str, str], value: float, now_s: float) -> str:
        summary = filled(rule.summary, labels, value)
        one = RaisedAlarm(rule.name, rule.severity, labels, value, summary, now_s)
        before = self._alarms.get(one.key)
        if before is None and len(self._alarms) >= self._alarms_max:
            self.left_out += 1
            return one.key
        since_s = before.since_s if before else now_s
        fired_s = before.fired_s if before else 0.0
        if not fired_s and now_s - since_s >= rule.lasting_s:
            fired_s = now_s
        self._alarms[one.key] = msgspec.structs.replace(one, since_s=since_s, fired_s=fired_s)
        return one.key
