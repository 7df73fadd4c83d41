"""A database that is looked at must be there; looking never makes one."""

import asyncio
from pathlib import Path

import pytest

from headrace.cli.application.databases import existing_events, existing_read_models
from headrace.errors import SchemaOutOfDate
from headrace.stores.database.schema import upgrade
from headrace.testing.conformance.streams import conformance_serializer


def test_a_database_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    file = tmp_path / "mistyped.db"

    async def look() -> None:
        with pytest.raises(SchemaOutOfDate, match="there is no database"):
            async with existing_read_models(f"sqlite:///{file}"):
                pass
        with pytest.raises(SchemaOutOfDate, match="there is no database"):
            async with existing_events(f"sqlite:///{file}", conformance_serializer()):
                pass

    asyncio.run(look())
    assert not file.exists()


def test_a_database_that_is_there_is_opened_and_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'there.db'}"

    async def look() -> tuple[int, int]:
        await upgrade(url)
        async with (
            existing_read_models(url) as models,
            existing_events(url, conformance_serializer()) as store,
        ):
            return await models.transact(lambda connection: 7), await store.last_position()

    assert asyncio.run(look()) == (7, 0)
