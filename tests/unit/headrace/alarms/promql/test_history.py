"""Figures are kept as far back as they are needed, and end where a process does not answer them any more."""

from headrace.alarms.promql.history import STALE_S, Figure, FigureHistory


def figure(value: float, name: str = "x", **labels: str) -> Figure:
    return Figure(name, labels, value)


def now(history: FigureHistory, moment: float) -> list[float]:
    return sorted(value for _, value in history.at("x", moment))


def test_the_newest_value_counts_until_it_is_stale() -> None:
    history = FigureHistory({"x": 0}, series_max=9)
    history.add(0, "j", "a", [figure(1)])
    assert now(history, STALE_S - 1) == [1]
    assert now(history, STALE_S) == []
    assert list(history.at("x", 0)) == [((("instance", "a"), ("job", "j")), 1)]


def test_a_series_that_its_process_answers_no_more_ends_and_others_stay() -> None:
    history = FigureHistory({"x": 0}, series_max=9)
    history.add(0, "j", "a", [figure(1, t="1"), figure(2, t="2")])
    history.add(0, "j", "b", [figure(3)])
    history.add(15, "j", "a", [figure(4, t="1")])
    assert now(history, 15) == [3, 4]
    assert now(history, 14) == [1, 2, 3]


def test_values_of_a_time_include_its_ends() -> None:
    history = FigureHistory({"x": 60}, series_max=9)
    for moment in (0, 30, 60, 90):
        history.add(moment, "j", "a", [figure(moment)])
    ((_, points),) = history.between("x", 30, 90)
    assert points == [(30, 30), (60, 60), (90, 90)]


def test_old_values_and_unknown_metrics_are_not_kept() -> None:
    history = FigureHistory({"x": 60}, series_max=9)
    history.add(0, "j", "a", [figure(1), figure(1, name="y")])
    history.add(10_000, "j", "a", [])
    assert list(history.between("x", 0, 10_000)) == []
    assert list(history.at("y", 0)) == []


def test_a_series_without_room_is_counted_and_takes_the_room_of_one_that_ended() -> None:
    history = FigureHistory({"x": 0}, series_max=1)
    history.add(0, "j", "a", [figure(1, t="1"), figure(2, t="2")])
    assert history.left_out == 1
    history.add(1_000, "j", "a", [figure(2, t="2")])
    history.add(2_000, "j", "a", [figure(2, t="2")])
    assert (history.left_out, now(history, 2_000)) == (0, [2])
