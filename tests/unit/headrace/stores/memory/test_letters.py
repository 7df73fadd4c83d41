"""The letters in memory."""

from collections.abc import AsyncIterator

import pytest

from headrace.stores.base import CommandLetterStore
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.stores.open import open_command_letters
from headrace.testing.conformance.letters import CommandLettersConformance


class TestMemoryCommandLetters(CommandLettersConformance):
    @pytest.fixture
    async def letters(self) -> AsyncIterator[CommandLetterStore]:
        letters = await open_command_letters("memory://")
        assert isinstance(letters, MemoryCommandLetters)
        yield letters
        await letters.aclose()
