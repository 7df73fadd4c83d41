"""What all letters of those who keep standings have in common: see those of each kind for the rest."""

import pytest

from headrace._projecting.handler_letters import HandlerLetters
from headrace._projecting.process_letters import ProcessLetters, ProcessManagerLetters
from headrace._projecting.standing_letters import StandingLetters


@pytest.mark.parametrize("kind", [HandlerLetters, ProcessManagerLetters, ProcessLetters])
def test_all_kinds_are_taken_up_in_one_way(kind: type[StandingLetters]) -> None:
    assert issubclass(kind, StandingLetters)
    for way in ("all", "retry", "skip", "_take_up"):
        assert getattr(kind, way) is getattr(StandingLetters, way)
