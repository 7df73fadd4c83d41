"""How figures are written."""

import pytest

from benchmarks.markdown import limits, mib, number, size, table, times


def test_a_table_has_a_head_a_rule_and_a_blank_line_behind() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |\n\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (number(1234.5), "1,234"),
        (number(12.345), "12.3"),
        (mib(5 * 2**20), "5"),
        (size(100), "100 bytes"),
        (size(1_024), "1 KiB"),
        (size(2**20), "1 MiB"),
        (times(2.345), "2.3"),
        (times(123.4), "123"),
    ],
)
def test_a_figure_has_no_more_digits_than_say_something(written: str, meant: str) -> None:
    assert written == meant


def test_a_machine_without_measured_limits_is_still_named() -> None:
    assert limits({"cores": 2, "python": "3.11"}) == "2 cores, Python 3.11."
