"""A report in one word: what was durable and is lost counts, what is passed over does not."""

from typing import Any

import pytest

from headrace_mq.store.check.report import Finding, Report


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([], "clean"),
        (["torn", "stale", "unfinished", "set aside", "unknown"], "clean"),
        (["stale", "newer"], "newer"),
        (["newer", "damaged"], "damaged"),
        (["missing"], "damaged"),
    ],
)
def test_the_status_is_the_worst_that_was_found(kinds: list[Any], status: str) -> None:
    findings = [Finding(file="f", kind=kind, reason="r") for kind in kinds]
    report = Report(directory="d", files=[], findings=findings, queues=[], ends={})
    assert report.status == status
    assert [finding.is_damage for finding in findings] == [
        kind in {"damaged", "missing"} for kind in kinds
    ]
