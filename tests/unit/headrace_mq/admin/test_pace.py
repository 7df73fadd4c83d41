import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.admin.pace import ResendRate, ResendSettings


@given(
    per_second=st.integers(1, 5_000),
    together=st.integers(1, 200),
    takes_s=st.lists(st.floats(0, 3), min_size=1, max_size=30),
)
def test_at_no_time_there_were_more_than_the_rate_allows(
    per_second: int, together: int, takes_s: list[float]
) -> None:
    settings = ResendSettings(per_second=per_second, together_max=together)
    now_s = begun_s = 50.0
    pace, done = ResendRate(settings, now_s), 0
    assert 1 <= pace.portion <= min(together, max(1, per_second / 10))
    for took_s in takes_s:
        done += pace.portion
        # All that was sent before this portion had its time.
        assert done - pace.portion <= (now_s - begun_s) * per_second + 0.001
        now_s += took_s
        now_s += pace.pause_s(pace.portion, now_s)


@pytest.mark.parametrize("name", ["per_second", "together_max"])
def test_less_than_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        ResendSettings(**{name: 0})
