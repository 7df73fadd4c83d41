"""A report is one line of JSON that says everything."""

import json

from headrace.rebuilding.report import RebuildReport


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
    assert set(told) == set(RebuildReport.__slots__)
    assert told["differences"] == [["a", {"balance": 1}, None]]
    assert told["end_offsets"] == {"ledger.events/0": 7}
    assert (told["switched"], told["compared"], told["events"]) == (False, 3, 5)
