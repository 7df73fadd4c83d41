"""An alarm waits, fires, and ends; what is unknown stays as it was."""

from collections.abc import Iterable

from headrace.alarms.board import AlarmBoard, RaisedAlarm
from headrace.alarms.rules.rule import AlarmRule

RULES = {
    "Slow": AlarmRule("Slow", "warning", "1m", "x > 1", "{{ $labels.instance }} takes {{ $value }} s"),
    "Down": AlarmRule("Down", "critical", "0s", "up == 0", "down"),
}  # fmt: skip
A, B = (("instance", "a"),), (("instance", "b"),)


def board(kept: Iterable[RaisedAlarm] = (), alarms_max: int = 100) -> AlarmBoard:
    return AlarmBoard(RULES, kept, alarms_max)


def test_an_alarm_fires_when_it_has_lasted_long_enough_and_then_ends() -> None:
    found = board()
    found.update(100, {"Slow": {A: 2.0}})
    assert ([one.key for one in found.alarms], found.firing) == (["Slow{instance=a}"], [])
    found.update(160, {"Slow": {A: 3.0}})
    (one,) = found.firing
    assert (one.since_s, one.fired_s, one.value, one.summary) == (100, 160, 3.0, "a takes 3 s")
    found.update(175, {"Slow": {}})
    assert found.alarms == []


def test_an_alarm_that_ends_too_early_begins_again() -> None:
    found = board()
    for moment, vector in ((0, {A: 2.0}), (30, {}), (45, {A: 2.0}), (90, {A: 2.0})):
        found.update(moment, {"Slow": vector})
    assert found.firing == []


def test_an_alarm_about_silent_processes_ends_where_others_say_that_it_is_over() -> None:
    found = board()
    first, second = (("group", "g1"),), (("group", "g2"),)
    reported = (("group", "g1"), ("instance", "a"))
    for _ in range(2):
        found.update(100, {"Down": {first: 1.0, second: 1.0, reported: 1.0}})
    found.update(115, {"Down": {}}, silent={"a"}, partial={"Down"}, over={"Down": {first: 1.0}})
    assert [one.labels for one in found.alarms] == [dict(second)]
    found.update(130, {"Down": {second: 1.0}}, over={"Down": {second: 1.0}})
    assert [one.labels for one in found.alarms] == [dict(second)], "it holds"


def test_the_worst_alarm_comes_first() -> None:
    found = board()
    found.update(0, {"Slow": {A: 2.0}, "Down": {}})
    found.update(60, {"Slow": {A: 2.0}, "Down": {B: 0.0}})
    assert [one.rule for one in found.firing] == ["Down", "Slow"]


def test_an_alarm_of_a_process_that_does_not_answer_stays() -> None:
    found = board()
    found.update(100, {"Down": {A: 0.0, B: 0.0}})
    found.update(115, {"Down": {}}, silent={"a"})
    assert [one.labels for one in found.firing] == [{"instance": "a"}]


def test_an_alarm_of_an_earlier_process_stays_while_its_rule_looks_further_back() -> None:
    earlier = board()
    earlier.update(0, {"Down": {A: 0.0}})
    found = board(earlier.alarms)
    found.update(15, {"Down": {}}, reaching={"Down"})
    assert found.firing == earlier.firing
    found.update(30, {"Down": {}})
    assert found.firing == []


def test_an_alarm_of_a_rule_that_is_gone_is_not_kept(alarm) -> None:
    assert board([alarm("Gone")]).alarms == []


def test_alarms_without_room_are_counted() -> None:
    found = board(alarms_max=1)
    found.update(100, {"Down": {A: 0.0, B: 0.0}})
    assert (len(found.alarms), found.left_out) == (1, 1)


def test_a_value_that_is_no_number_says_nothing() -> None:
    found = board()
    found.update(0, {"Down": {A: float("nan")}})
    assert found.alarms == []


def test_an_alarm_about_several_processes_stays_while_one_of_them_is_silent() -> None:
    found = board()
    found.update(100, {"Down": {(("group", "g"),): 0.0}})
    found.update(115, {"Down": {}}, silent={"a"}, partial={"Down"})
    assert [one.labels for one in found.firing] == [{"group": "g"}]
    found.update(130, {"Down": {}}, silent={"a"}, partial={"Slow"})
    assert found.firing == []


def test_the_alarms_of_a_rule_that_failed_stay() -> None:
    found = board()
    found.update(100, {"Down": {A: 0.0}})
    found.update(115, {}, unknown={"Down"})
    assert [one.rule for one in found.firing] == ["Down"]
