"""One system in one case."""

import os

import pytest

from benchmarks.peers.contender import TooSlow, growth, reason, spent

# No process has it: above what Linux gives.
NOBODY = 2**22 + 1


def test_processes_that_are_gone_are_left_out_of_processor_time() -> None:
    assert list(spent([NOBODY, os.getpid()])) == [os.getpid()]


def test_only_processes_that_were_there_at_both_times_count() -> None:
    assert growth({1: 1.0, 2: 5.0}, {1: 1.5, 3: 9.0}) == 0.5


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (TimeoutError(), "took longer than 20 s"),
        (TooSlow("took in 5 of 9 in 3 s"), "took in 5 of 9 in 3 s"),
        (SystemExit("ended"), "its process ended; its error stands in the output"),
        (OSError("broken\nand more"), "OSError: broken"),
    ],
)
def test_why_there_is_no_figure_is_one_line(failure: BaseException, said: str) -> None:
    assert reason(failure) == said
