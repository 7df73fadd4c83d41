"""Databases with an up-to-date schema for the store's own tests."""

from pathlib import Path

import pytest

from headrace.stores.database.schema import upgrade


@pytest.fixture
async def sqlite_database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    await upgrade(url)
    return url


@pytest.fixture
async def migrated_postgres(postgres_database: str) -> str:
    await upgrade(postgres_database)
    return postgres_database
