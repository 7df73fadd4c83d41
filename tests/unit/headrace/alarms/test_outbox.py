"""A receiver hears of each change once, of what goes on after a time, and of the end of what it heard of."""

from typing import Any

import pytest

from headrace.alarms.board import RaisedAlarm
from headrace.alarms.outbox import FORGOTTEN_S, AlarmOutbox


def loud(_: RaisedAlarm) -> bool:
    return False


@pytest.fixture
def outbox() -> AlarmOutbox:
    return AlarmOutbox({}, repeat_s=3_600, pause_s=15, pause_s_max=60)


def states(
    outbox: AlarmOutbox, now_s: float, *firing: RaisedAlarm, silenced: Any = loud
) -> list[str]:
    return [one.state for one in outbox.due(now_s, firing, silenced)]


def take_all(outbox: AlarmOutbox, now_s: float, *firing: RaisedAlarm) -> list[str]:
    due = outbox.due(now_s, firing, loud)
    for one in due:
        outbox.took(one, now_s)
    return [one.state for one in due]


def test_a_change_is_sent_once_and_again_after_a_time(outbox, alarm) -> None:
    one = alarm(instance="a")
    assert take_all(outbox, 0, one) == ["firing"]
    assert take_all(outbox, 15, one) == []
    assert take_all(outbox, 3_600, one) == ["firing"]
    assert take_all(outbox, 3_615) == ["resolved"]
    assert take_all(outbox, 3_630) == []


def test_a_message_that_fails_stays_due_with_pauses_that_grow(outbox, alarm) -> None:
    one = alarm()
    pauses = []
    for now in (0, 100, 200, 300):
        assert states(outbox, now, one) == ["firing"]
        outbox.failed("away", now)
        pauses.append(outbox.next_s - now)
        assert states(outbox, now + 1, one) == []
    assert pauses == [15, 30, 60, 60]
    assert (outbox.failures, outbox.sentence) == (4, "away")
    assert take_all(outbox, 400, one) == ["firing"]
    assert (outbox.failures, outbox.sentence) == (0, "")


def test_an_alarm_that_came_and_went_meanwhile_is_not_told(outbox, alarm) -> None:
    states(outbox, 0, alarm())
    outbox.failed("away", 0)
    assert states(outbox, 15) == []


def test_an_alarm_that_comes_back_before_its_end_was_sent_is_no_news(outbox, alarm) -> None:
    take_all(outbox, 0, alarm())
    assert states(outbox, 15) == ["resolved"]
    outbox.failed("away", 15)
    assert states(outbox, 30, alarm()) == []


def test_a_silenced_alarm_is_told_when_the_silence_ends(outbox, alarm) -> None:
    one = alarm()
    assert states(outbox, 0, one, silenced=lambda _: True) == []
    assert states(outbox, 15, one) == ["firing"]


def test_the_end_of_an_alarm_that_was_silenced_after_it_was_told_is_sent(outbox, alarm) -> None:
    take_all(outbox, 0, alarm())
    assert states(outbox, 9_999, alarm(), silenced=lambda _: True) == []
    assert states(outbox, 10_015, silenced=lambda _: True) == ["resolved"]


def test_an_end_that_was_not_taken_for_a_day_is_forgotten(outbox, alarm) -> None:
    take_all(outbox, 0, alarm())
    assert states(outbox, 15) == ["resolved"]
    assert states(outbox, 16 + FORGOTTEN_S) == []
    assert outbox.heard == {}


def test_an_outbox_goes_on_with_what_an_earlier_process_told(outbox, alarm) -> None:
    take_all(outbox, 0, alarm())
    later = AlarmOutbox(outbox.heard, repeat_s=3_600, pause_s=15, pause_s_max=60)
    assert states(later, 15, alarm()) == []
    assert states(later, 30) == ["resolved"]


def test_the_end_of_a_silence_is_news_of_what_still_fires(outbox, alarm) -> None:
    one = alarm()
    take_all(outbox, 0, one)
    assert states(outbox, 15, one, silenced=lambda _: True) == []
    later = AlarmOutbox(outbox.heard, repeat_s=3_600, pause_s=15, pause_s_max=60)
    assert take_all(later, 30, one) == ["firing"]
    assert take_all(later, 45, one) == []
