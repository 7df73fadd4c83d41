"""What all letters of those who keep standings have in common: see those of each kind for the rest."""

import pytest

from headrace.handlers.letters import HandlerLetters
from headrace.handlers.progress_letters import StandingLetters
from headrace.processes.letters import ProcessLetters, ProcessManagerLetters


@pytest.mark.parametrize("kind", [HandlerLetters, ProcessManagerLetters, ProcessLetters])
def test_all_kinds_are_taken_up_in_one_way(kind: type[StandingLetters]) -> None:
    assert issubclass(kind, StandingLetters)
    for way in ("all", "retry", "skip", "_take_up"):
        assert getattr(kind, way) is getattr(StandingLetters, way)
