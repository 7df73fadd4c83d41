"""The clock that is moved by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.testing.fakes import FakeClock


def test_a_fake_clock_stands_still_until_it_is_advanced():
    clock = FakeClock(datetime(2026, 2, 1, tzinfo=UTC))
    assert (clock.now(), clock.now()) == (datetime(2026, 2, 1, tzinfo=UTC),) * 2
    clock.advance(1_500)
    assert clock.now() == datetime(2026, 2, 1, tzinfo=UTC) + timedelta(seconds=1.5)
    assert clock.monotonic_ms() == 1_500


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)
