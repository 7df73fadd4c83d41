from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.quotas.traffic import WINDOW_S, Meter, Meters, Total
from headrace_mq.protocol.administration import NO_TRAFFIC, Traffic

events = st.lists(
    st.tuples(st.integers(0, 3_000), st.integers(0, 5), st.integers(0, 500)), max_size=40
)


@given(events, st.integers(0, 15_000))
def test_the_windows_hold_the_whole_seconds_before_now(
    steps: list[tuple[int, int, int]], later: int
) -> None:
    meter, now, happened = Meter(), 0, []
    for step, messages, size in steps:
        now += step
        meter.add(now, messages, size)
        happened.append((now // 1_000, messages, size))
    now += later
    second = now // 1_000

    def within(seconds: int) -> tuple[int, int]:
        chosen = [one for one in happened if second - seconds <= one[0] < second]
        return sum(one[1] for one in chosen), sum(one[2] for one in chosen)

    assert meter.read(now) == Traffic(*within(1), *within(WINDOW_S))
    assert meter.read(now) == meter.read(now)


def test_a_rate_is_the_same_through_a_whole_second() -> None:
    meter = Meter()
    for at in (5_000, 5_999):
        meter.add(at, 3, 100)
    assert meter.read(5_999) == NO_TRAFFIC
    assert meter.read(6_000) == meter.read(6_999) == Traffic(6, 200, 6, 200)
    assert meter.read(7_000) == Traffic(0, 0, 6, 200)
    assert meter.read(15_999) == Traffic(0, 0, 6, 200)
    assert meter.read(16_000) == NO_TRAFFIC


def test_a_meter_keeps_no_more_than_its_window() -> None:
    meter = Meter()
    for second in range(1_000):
        meter.add(second * 1_000, 1, 1)
    assert len(meter._seconds) == WINDOW_S + 1


def test_keys_are_counted_apart_and_together() -> None:
    meters = Meters[str]()
    meters.add("a", 1_000, 2, 20)
    meters.add("b", 1_500, 3, 30)
    assert meters.read("a", 2_000) == Traffic(2, 20, 2, 20)
    assert meters.read("never", 2_000) == NO_TRAFFIC
    assert meters.total(2_000) == Traffic(5, 50, 5, 50)


def test_idle_keys_make_room_for_others() -> None:
    meters = Meters[str](2)
    for key in ("a", "b", "c"):
        meters.add(key, 1_000, 1, 1)
    assert (len(meters), meters.read("c", 2_000)) == (2, NO_TRAFFIC)
    assert meters.total(2_000).messages_1s == 3
    meters.add("b", 8_000, 1, 1)
    meters.forget_idle(12_000)
    assert len(meters) == 1
    meters.add("c", 12_000, 1, 1)
    assert meters.read("c", 13_000).messages_1s == 1
    assert meters.read("b", 13_000).messages_10s == 1


@given(events)
def test_a_meter_counts_everything_since_its_start(steps: list[tuple[int, int, int]]) -> None:
    meter, now = Meter(), 0
    for step, messages, size in steps:
        now += step
        meter.add(now, messages, size)
    assert meter.since_start() == (sum(one[1] for one in steps), sum(one[2] for one in steps))


def test_totals_by_name_outlive_their_meters() -> None:
    meters = Meters[str](3, name_of=lambda key: key[0])
    for key in ("a1", "a2", "b1", "c1"):
        meters.add(key, 1_000, 2, 20)
    # There was no room for the last one, but in the total.
    totals = {"a": Total(4, 40), "b": Total(2, 20)}
    assert (meters.by_name(), meters.total_since_start()) == (totals, Total(8, 80))
    meters.forget_idle(60_000)
    assert (len(meters), meters.by_name()) == (0, totals)
    meters.add("a1", 61_000, 1, 1)
    assert meters.by_name()["a"] == Total(5, 41)


def test_names_of_dropped_meters_have_a_limit() -> None:
    meters = Meters[str](1, name_of=str)
    for second, key in enumerate("ab"):
        meters.add(key, second * 100_000, 1, 1)
        meters.forget_idle((second + 1) * 100_000)
    assert meters.by_name() == {"a": Total(1, 1)}


def test_names_that_are_gone_make_room_for_others() -> None:
    meters, topics = Meters[str](3, name_of=str), {"stays"}
    meters.add("stays", 1_000, 1, 1)
    for number in range(10):
        topics.add(name := f"short-{number}")
        meters.add(name, 1_000, 2, 20)
        topics.remove(name)
        meters.forget_names(topics.__contains__)
    assert (len(meters), meters.by_name()) == (1, {"stays": Total(1, 1)})
    assert meters.total_since_start() == Total(21, 201)


def test_a_name_that_comes_again_begins_at_0() -> None:
    meters = Meters[str](name_of=lambda key: key[0])
    for key in ("a1", "a2", "b1"):
        meters.add(key, 1_000, 2, 20)
    meters.forget_names("b".__contains__)
    assert meters.read("a1", 2_000) == NO_TRAFFIC
    meters.add("a1", 2_000, 1, 1)
    assert meters.read("a1", 3_000) == Traffic(1, 1, 1, 1)
    assert meters.by_name() == {"a": Total(1, 1), "b": Total(2, 20)}


def test_a_key_that_is_gone_leaves_its_name_what_it_had() -> None:
    meters = Meters[str](name_of=lambda key: key[0])
    for key in ("a1", "a2"):
        meters.add(key, 1_000, 2, 20)
    meters.forget("a2".__eq__)
    assert (meters.read("a1", 2_000).messages_1s, meters.read("a2", 2_000)) == (2, NO_TRAFFIC)
    assert meters.by_name() == {"a": Total(4, 40)}


def test_a_name_is_found_once_for_each_meter_and_never_when_totals_are_read() -> None:
    asked: list[str] = []
    meters = Meters[str](name_of=lambda key: asked.append(key) or "all")
    for key in ("a", "b", "a"):
        meters.add(key, 1_000, 1, 10)
    assert meters.by_name() == {"all": Total(3, 30)}
    assert asked == ["a", "b"]


def test_meters_without_names_have_no_totals_by_name() -> None:
    meters = Meters[str]()
    meters.add("a", 1_000, 1, 1)
    meters.forget_idle(60_000)
    assert (meters.by_name(), meters.total_since_start()) == ({}, Total(1, 1))
