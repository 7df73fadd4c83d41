import pytest

from headrace_mq.client_settings import DELAY_LEVELS
from headrace_mq.protocol.scheduled import delay_of_level


def test_the_levels_are_rocketmqs_eighteen_in_its_order() -> None:
    seconds = [1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200]
    assert [delay // 1_000 for delay in DELAY_LEVELS.values()] == seconds
    assert (next(iter(DELAY_LEVELS)), list(DELAY_LEVELS)[-1]) == ("1s", "2h")


def test_a_level_has_its_delay_and_an_unknown_one_is_refused_with_the_names() -> None:
    assert delay_of_level("10s") == 10_000
    with pytest.raises(ValueError, match="use one of 1s, 5s"):
        delay_of_level("7s")
