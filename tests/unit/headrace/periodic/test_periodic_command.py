"""Which occurrences get a command, and that its id is always the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import AggregateId, Command
from headrace.periodic.periodic_command import MISSED_MAX, PeriodicCommand
from headrace.periodic.schedule import CronSchedule

NOW = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)


class Remind(Command):
    day: AggregateId


def reminding(missed: Any = "latest", make: Any = None) -> PeriodicCommand:
    return PeriodicCommand(
        name="remind",
        schedule=CronSchedule("*/5 * * * *"),
        make=make or (lambda moment: Remind(day=f"{moment:%d}")),
        missed=missed,
    )


def due(missed: str, last: timedelta, now: datetime = NOW) -> list[str]:
    return [f"{each:%H:%M}" for each in reminding(missed).due(now - last, now)]


@pytest.mark.parametrize(
    ("missed", "found"),
    [("all", ["11:50", "11:55", "12:00"]), ("latest", ["12:00"]), ("skip", ["12:00"])],
)
def test_a_policy_says_which_missed_ones_are_made_up_for(missed: str, found: list[str]) -> None:
    assert due(missed, timedelta(minutes=14)) == found
    assert due(missed, timedelta(seconds=5)) == []


def test_one_that_is_later_than_a_restart_takes_is_skipped() -> None:
    late = NOW + timedelta(minutes=2)
    assert due("skip", timedelta(minutes=4), late) == []
    assert due("latest", timedelta(minutes=4), late) == ["12:00"]


def test_those_that_are_made_up_for_are_bounded() -> None:
    assert len(due("all", timedelta(days=30))) == MISSED_MAX


def test_the_command_of_an_occurrence_has_one_id_for_ever() -> None:
    first = reminding().envelope("shop", NOW)
    assert first == reminding("all").envelope("shop", NOW)
    assert first.command_id == "a59781a3-1700-5fb5-9e0b-7badf980bbdf"
    others = [("shop", NOW + timedelta(minutes=5)), ("other", NOW)]
    assert first.command_id not in {reminding().envelope(*each).command_id for each in others}


def test_what_is_no_command_is_refused() -> None:
    with pytest.raises(TypeError, match="periodic remind returned 5, which is no command"):
        reminding(make=lambda moment: 5).envelope("shop", NOW)
