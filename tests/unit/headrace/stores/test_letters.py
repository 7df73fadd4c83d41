"""The letters in a database, SQLite or PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from headrace.stores.base import CommandLetterStore
from headrace.stores.letters import DatabaseCommandLetters
from headrace.stores.open import open_command_letters
from headrace.testing.conformance.letters import CommandLettersConformance, letter


@pytest.fixture(params=["sqlite_database", "migrated_postgres"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


class TestDatabaseCommandLetters(CommandLettersConformance):
    @pytest.fixture
    async def letters(self, database: str) -> AsyncIterator[CommandLetterStore]:
        letters = await open_command_letters(database)
        assert isinstance(letters, DatabaseCommandLetters)
        yield letters
        await letters.aclose()


async def test_letters_outlive_the_process(database: str) -> None:
    first = await open_command_letters(database)
    await first.park([letter("a", "1")])
    await first.aclose()
    second = await open_command_letters(database)
    assert [each.command_id for each in await second.read()] == ["1"]
    await second.aclose()
