"""Databases with an up-to-date schema for the store's own tests."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest


@pytest.fixture
async def sqlite_database(tmp_path: Path, give_schema: Callable[[str], Awaitable[None]]) -> str:
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    await give_schema(url)
    return url


@pytest.fixture
async def migrated_postgres(
    postgres_database: str, give_schema: Callable[[str], Awaitable[None]]
) -> str:
    await give_schema(postgres_database)
    return postgres_database
