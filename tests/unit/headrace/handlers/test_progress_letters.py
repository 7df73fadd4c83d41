"""What the letters of event handlers and of process managers have in common: see those of each kind for the rest."""

import pytest

from headrace.handlers.letters import HandlerLetters
from headrace.handlers.progress_letters import ReaderLetters
from headrace.processes.letters import ProcessLetters, ProcessManagerLetters


@pytest.mark.parametrize("kind", [HandlerLetters, ProcessManagerLetters, ProcessLetters])
def test_letters_of_all_kinds_are_retried_in_one_way(kind: type[ReaderLetters]) -> None:
    assert issubclass(kind, ReaderLetters)
    for way in ("all", "retry", "skip", "_take_up"):
        assert getattr(kind, way) is getattr(ReaderLetters, way)
