"""A report is one line of JSON that says everything."""

import json

import pytest

from headrace.rebuild.report import RebuildReport


def test_a_report_is_one_line_of_json_with_every_field() -> None:
    report = RebuildReport(
        projection="accounts",
        generation=2,
        table="accounts__2",
        start="zero",
        end_offsets={"ledger.events/0": 7},
        events=5,
        compared=3,
        mismatches=1,
        differences=(("a", {"balance": 1}, None),),
        seconds={"fold": 0.5, "total": 0.7},
    )
    text = report.to_json()
    assert "\n" not in text
    told = json.loads(text)
    assert set(told) == {*RebuildReport.__slots__, "skew", "bytes_read"}
    assert told["differences"] == [["a", {"balance": 1}, None]]
    assert told["end_offsets"] == {"ledger.events/0": 7}
    assert (told["switched"], told["compared"], told["events"]) == (False, 3, 5)


@pytest.mark.parametrize(
    ("ends", "skew"), [({"t/0": 7, "t/1": 3}, 1.5), ({"t/0": 2, "t/1": 2}, 1.0), ({}, 1.0)]
)
def test_the_largest_queue_is_told_in_times_of_the_mean(ends: dict[str, int], skew: float) -> None:
    queues = {name: {"messages": 2, "bytes": 10, "read_ms": 1, "work_ms": 2} for name in ends}
    report = RebuildReport(
        projection="accounts", generation=2, table="accounts__2", start="offsets",
        start_offsets={"t/0": 1, "t/1": 1}, end_offsets=ends, queues=queues,
    )  # fmt: skip
    assert report.skew == pytest.approx(skew)
    assert report.bytes_read == (10 * len(ends) or None)
    told = json.loads(report.to_json())
    assert (told["skew"], told["bytes_read"]) == (round(report.skew, 3), report.bytes_read)
