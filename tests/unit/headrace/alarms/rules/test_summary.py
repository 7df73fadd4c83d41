"""Summaries are filled as Prometheus fills them."""

import pytest

from headrace.alarms.rules.summary import filled
from headrace.alarms.rules.table import RULES


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        ("$labels.group", 0, "kitchen"),
        ("$labels.gone", 0, ""),
        ("$value", 4, "4"),
        ("$value | humanize", 2.512345, "2.512"),
        ("$value | humanize", 12_345, "12.35k"),
        ("$value | humanizeDuration", 0.25, "250ms"),
        ("$value | humanizeDuration", 7.5, "7.5s"),
        ("$value | humanizeDuration", 0, "0s"),
        ("$value | humanizeDuration", 90_061, "1d 1h 1m 1s"),
        ("$value | humanizeDuration", -120, "-2m 0s"),
        ("$value | humanizeDuration", float("inf"), "inf"),
        ("$value | humanizePercentage", 0.0523, "5.23%"),
    ],
)
def test_a_place_is_filled(place: str, value: float, text: str) -> None:
    assert filled(f"a {{{{ {place} }}}} b", {"group": "kitchen"}, value) == f"a {text} b"


@pytest.mark.parametrize("name", RULES)
def test_a_summary_has_no_place_that_stays_open(name: str) -> None:
    assert "{{" not in filled(RULES[name].summary, {}, 1.5)
