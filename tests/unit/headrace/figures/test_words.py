"""Times, sizes and names as people read them."""

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from headrace.figures.words import age, named, per_second, size, time_ms, when
from headrace_mq.protocol.administration import Traffic
from headrace_mq.protocol.bodies import TopicDescription, TopicsAnswer


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (0, ""),
        (1_700_000_000_000, "2023-11-14 22:13:20.000"),
        (1, "1970-01-01 00:00:00.001"),
        (1 << 62, f"{1 << 62} ms"),
    ],
)
def test_a_time_is_written_for_people(time_ms: int, shown: str) -> None:
    assert when(time_ms) == shown


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 22:13:20.5", 1_700_000_000_500),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ],
)
def test_a_time_is_read_with_utc_where_no_zone_stands(text: str, read: int) -> None:
    assert time_ms(text) == read


def test_a_word_that_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="'noon' is no time; write 2026-01-31T14"):
        time_ms("noon")


@pytest.mark.parametrize(
    "text",
    [
        "253402300800000", "9" * 30, "9" * 5_000,
        "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-10:00", "9999-12-31T23:59:59.9999999",
    ],
)  # fmt: skip
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"year 9999|years 1 and 9999"):
        time_ms(text)


@pytest.mark.parametrize("text", ["253402300799999", "0001-01-01", "9999-12-31T23:59:59"])
def test_the_first_and_the_last_time_of_the_calendar_are_times(text: str) -> None:
    assert 1 <= datetime.fromtimestamp(time_ms(text) / 1_000, UTC).year <= 9_999


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_a_size_has_the_unit_that_fits(value: int, shown: str) -> None:
    assert size(value) == shown


def test_an_age_never_shrinks_below_nothing() -> None:
    assert (age(3_000, 1_500), age(1_000, 1_500), age(1_000, 0)) == ("1.5 s", "0.0 s", "")


def test_a_rate_is_at_least_one_where_there_was_a_message() -> None:
    assert per_second(Traffic(0, 0, 1, 25)) == (1, 3)


def test_structs_and_tuples_get_the_names_of_their_fields() -> None:
    class Pair(NamedTuple):
        left: int
        right: list[TopicDescription]

    topic = TopicDescription("t", 2, "forever", [1])
    shown = {
        "topic": "t",
        "queues": 2,
        "retention": "forever",
        "unwritable": [1],
        "unreadable": [],
        "owned": [],
    }
    assert named({"answer": TopicsAnswer([topic])}) == {"answer": {"topics": [shown]}}
    assert named(Pair(1, [topic])) == {"left": 1, "right": [shown]}
