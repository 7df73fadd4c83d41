"""A command that was found is known by what the store, the letters or the broker has of it."""

from datetime import UTC, datetime

import pytest

from headrace.journey.command_search import FoundCommand
from headrace.stores.base import CommandLetter, LetterState

LETTER = CommandLetter(
    aggregate_id="ann", command_id="c-1", name="Order", state=LetterState.PARKED,
    parked_at=datetime(2026, 1, 1, tzinfo=UTC), error="KeyError", sentence="no", key="ann", headers={}, body=b"",
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (FoundCommand("ann", "c-1"), False),
        (FoundCommand("ann", "c-1", letter=LETTER), True),
        (FoundCommand("ann", "c-1", damage="its checksum differs"), True),
    ],
)
def test_a_command_is_known_if_anything_has_it(found: FoundCommand, known: bool) -> None:
    assert found.known is known
