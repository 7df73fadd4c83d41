"""Amounts as people write them."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.amounts import duration_ms, duration_us, percent, size_bytes, unit_of

TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@given(st.integers(0, 10**9), st.sampled_from(sorted(TIMES)), st.sampled_from(["", " "]))
def test_a_time_is_its_number_of_its_unit(number: int, unit: str, between: str) -> None:
    assert duration_ms(f"{number}{between}{unit}") == number * TIMES[unit]
    assert duration_ms(f"{number}{unit.upper()}") == number * TIMES[unit]


@given(st.integers(0, 10**9), st.sampled_from(sorted(SIZES)))
def test_a_size_is_its_number_of_its_unit(number: int, unit: str) -> None:
    assert size_bytes(f"{number}{unit}") == number * SIZES[unit]
    assert size_bytes(f"{number}{unit.lower()}") == number * SIZES[unit]


def test_fractions_count_where_they_come_out_whole() -> None:
    assert duration_ms("1.5h") == 5_400_000
    assert duration_us("0.3ms") == 300
    assert size_bytes("0.5KiB") == 512
    assert percent("90%") == 90
    with pytest.raises(typer.BadParameter, match=r"'0.5ms' is no whole number of ms"):
        duration_ms("0.5ms")
    with pytest.raises(typer.BadParameter, match="no whole number of %"):
        percent("12.5%")


@pytest.mark.parametrize("text", ["0", " 0 ", "0.0"])
def test_zero_needs_no_unit(text: str) -> None:
    assert duration_ms(text) == size_bytes(text) == percent(text) == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("72", "'72' has no unit; write a time such as"),
        ("72x", "'x' is none of ms, s, m, h, d, w"),
        ("10GiB", "'GiB' is none of"),
        ("-1h", "'-1h' is not a time such as"),
        ("", "'' is not a time"),
        ("1h30m", "is not a time"),
        ("h", "is not a time"),
        ("1e3s", "is not a time"),
    ],
)
def test_anything_else_is_refused_with_a_sentence_that_shows_what_is_right(
    text: str, sentence: str
) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        duration_ms(text)
    assert sentence in str(caught.value)
    assert "72h" in str(caught.value)


@given(
    st.sampled_from(["busy_poll_us", "unconsumed_ms_max", "compact_bytes_per_s", "disk_percent"]),
    st.integers(0, 10**15),
)
def test_an_amount_that_a_unit_writes_is_read_back(setting: str, number: int) -> None:
    unit = unit_of(setting)
    assert unit is not None
    assert unit.read(unit.write(number)) == number


@pytest.mark.parametrize(
    ("setting", "number", "text"),
    [
        ("flush_interval_ms", 500, "500ms"),
        ("transient_age_ms", 72 * 3_600_000, "3d"),
        ("compact_memory_bytes", 4 << 20, "4MiB"),
        ("backlog_bytes_max", 0, "0"),
        ("disk_refuse_percent", 90, "90%"),
    ],
)
def test_an_amount_is_written_in_the_largest_unit_that_fits(
    setting: str, number: int, text: str
) -> None:
    unit = unit_of(setting)
    assert unit is not None
    assert unit.write(number) == text


def test_a_setting_without_a_unit_in_its_name_is_no_amount() -> None:
    assert unit_of("connections_max") is None
