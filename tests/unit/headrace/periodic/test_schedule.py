"""Occurrences of a time table: in their zone, over both changes of the clock, each once."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.periodic.schedule import CronSchedule

TABLES = ["*/5 * * * *", "30 2 * * *", "0 */2 * * *", "15 1,2,3 * * *", "* 2 * * *", "0 3 L * *"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
YEAR = datetime(2026, 1, 1, tzinfo=UTC)
moments = st.integers(0, 365 * 86_400).map(lambda second: YEAR + timedelta(seconds=second))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def days(table: str, zone: str, begin: str, end: str) -> list[str]:
    found = CronSchedule(table, zone).between(utc(begin), utc(end), most=100)
    return [f"{each:%d %H:%M}" for each in found]


def test_fields_are_meant_in_the_zone() -> None:
    assert days("0 3 * * *", "Europe/Berlin", "2026-01-01", "2026-01-03") == [
        "01 02:00",
        "02 02:00",
    ]
    assert days("0 3 * * *", "UTC", "2026-01-01", "2026-01-02T03:00") == ["01 03:00", "02 03:00"]


def test_a_fixed_time_that_the_clock_skips_comes_when_it_goes_on() -> None:
    # 2026-03-29 at 02:00 the clocks of Berlin show 03:00, which is 01:00 of UTC.
    assert days("30 2 * * *", "Europe/Berlin", "2026-03-28", "2026-03-30T12:00") == [
        "28 01:30", "29 01:00", "30 00:30",
    ]  # fmt: skip


def test_a_fixed_time_that_the_clock_shows_twice_comes_once() -> None:
    # 2026-10-25 at 03:00 the clocks of Berlin show 02:00 again.
    assert days("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-26") == ["25 00:30"]
    assert days("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", "2026-10-26") == []


def test_a_table_of_every_hour_follows_time_and_not_the_clock() -> None:
    assert days("30 * * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T03:00") == [
        "25 00:30", "25 01:30", "25 02:30",
    ]  # fmt: skip
    assert days("30 * * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T02:00") == [
        "29 00:30", "29 01:30",
    ]  # fmt: skip


@given(st.sampled_from(TABLES), st.sampled_from(ZONES), moments, st.integers(0, 3_000), st.data())
def test_the_parts_of_a_time_have_the_occurrences_of_the_whole(
    table: str, zone: str, begin: datetime, minutes: int, data: st.DataObject
) -> None:
    schedule = CronSchedule(table, zone)
    end = begin + timedelta(minutes=minutes)
    whole = schedule.between(begin, end, most=10_000)
    assert whole == sorted(set(whole))
    assert all(begin < each <= end for each in whole)
    middle = begin + timedelta(seconds=data.draw(st.integers(0, minutes * 60)))
    parts = [(begin, middle), (middle, end)]
    assert whole == [each for part in parts for each in schedule.between(*part, most=10_000)]
    most = data.draw(st.integers(1, 10))
    assert schedule.between(begin, end, most=most) == whole[-most:]
    if whole:
        assert schedule.following(begin) == whole[0]


@pytest.mark.parametrize("table", ["", "* * * *", "* * * * * *", "61 * * * *", "x", "0 0 30 2 *"])
def test_an_unusable_table_is_refused(table: str) -> None:
    with pytest.raises(DefinitionError, match=r"is unusable .* write minute, hour, day"):
        CronSchedule(table)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(DefinitionError, match="there is no time zone"):
        CronSchedule("* * * * *", zone)
