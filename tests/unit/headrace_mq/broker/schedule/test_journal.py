import pytest

from headrace_mq.broker.schedule.journal import (
    KIND_HEADER,
    Cancelled,
    ClockSet,
    Delayed,
    Delivered,
    Delivery,
    Moved,
    ScheduledBatch,
    check_scheduled,
    headers_of,
    moved_headers,
    own_record,
    read_event,
)
from headrace_mq.broker.schedule.wheel import Entry
from headrace_mq.errors import DataCorrupt, InvalidArgument
from headrace_mq.protocol.batch import Columns, assign, encode_batch, read_header
from headrace_mq.protocol.scheduled import (
    AHEAD_MS_MAX,
    AT_HEADER,
    DELAY_HEADER,
    SCHEDULE_QUEUE,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
)

NOW = 1_700_000_000_000
DAY = 86_400_000


def event(columns: Columns, *, base_offset: int = 0, index: int = 0):
    batch = encode_batch(SCHEDULE_QUEUE, columns, born_first_ms=NOW)
    assign(batch, base_offset=base_offset, position=0, appended_at_ms=NOW, epoch=1)
    return read_event(read_header(batch), columns, index)


def scheduled(*headers: dict[str, str]) -> Columns:
    return Columns([], [], list(headers), [b""] * len(headers), [])


def test_a_time_is_taken_as_it_is_and_a_delay_counts_from_the_append() -> None:
    columns = scheduled(
        {TOPIC_HEADER: "t", AT_HEADER: "77"}, {TOPIC_HEADER: "t", DELAY_HEADER: "5000"}
    )
    assert event(columns, base_offset=40) == Entry(77, 40, 40)
    assert event(columns, base_offset=40, index=1) == Delayed(Entry(NOW + 5_000, 41, 41))


@pytest.mark.parametrize(
    "own",
    [
        Cancelled(3, NOW),
        Delivery(7, [ScheduledBatch("t", 2, 9, [Entry(NOW, 1, 4)])], [Entry(1, 2, 3)]),
        Delivered(),
        ClockSet(-5),
    ],
)
def test_the_brokers_own_records_come_back_as_they_were(own) -> None:
    assert event(own_record(own)) == own


def test_a_message_that_is_written_again_keeps_its_number_and_due_time() -> None:
    headers = {"a": "b", TOPIC_HEADER: "t", DELAY_HEADER: "5"}
    for is_delay in (False, True):
        again = moved_headers(headers, Entry(NOW + 9, 3, 3), is_delay=is_delay)
        assert event(scheduled(again), base_offset=90) == Moved(Entry(NOW + 9, 3, 90), is_delay)
        assert headers_of(again) == ("t", {"a": "b"})
        assert moved_headers(again, Entry(NOW + 9, 3, 90), is_delay=is_delay) == again


@pytest.mark.parametrize(
    "columns",
    [
        scheduled({}),
        Columns([], [], [], [b""], []),
        scheduled({TOPIC_HEADER: "t", AT_HEADER: "soon"}),
        scheduled({KIND_HEADER: "event"}),
        scheduled({KIND_HEADER: "moved", AT_HEADER: "1"}),
    ],
)
def test_a_record_that_means_nothing_is_damage(columns: Columns) -> None:
    with pytest.raises(DataCorrupt, match="record 0"):
        event(columns)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "has the header"),
        ({TOPIC_HEADER: "t"}, "one of"),
        ({TOPIC_HEADER: "t", AT_HEADER: "1", DELAY_HEADER: "1"}, "one of"),
        ({TOPIC_HEADER: "t", AT_HEADER: "1", KIND_HEADER: "event"}, "no other"),
        ({TOPIC_HEADER: "no spaces", AT_HEADER: "1"}, "use letters"),
        ({TOPIC_HEADER: SCHEDULE_TOPIC, AT_HEADER: "1"}, "itself"),
        ({TOPIC_HEADER: "t", AT_HEADER: "-1"}, "no time"),
        ({TOPIC_HEADER: "t", AT_HEADER: "1e9"}, "invalid literal"),
        ({TOPIC_HEADER: "t", AT_HEADER: str(1 << 80)}, "no time"),
        ({TOPIC_HEADER: "t", DELAY_HEADER: str(AHEAD_MS_MAX + DAY + 1)}, "ahead"),
        ({TOPIC_HEADER: "t", AT_HEADER: str(NOW + AHEAD_MS_MAX + DAY + 1)}, "ahead"),
    ],
)
def test_a_client_may_not_schedule_nonsense(headers: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_scheduled([headers], 1, now_ms=NOW)


def test_a_year_and_a_day_ahead_and_the_past_are_taken_and_no_headers_are_not() -> None:
    check_scheduled(
        [
            {TOPIC_HEADER: "t", DELAY_HEADER: str(AHEAD_MS_MAX)},
            {TOPIC_HEADER: "t", AT_HEADER: str(NOW + AHEAD_MS_MAX + DAY)},
            {TOPIC_HEADER: "t", AT_HEADER: "0"},
        ],
        3,
        now_ms=NOW,
    )
    with pytest.raises(InvalidArgument, match="names its topic"):
        check_scheduled([], 1, now_ms=NOW)
