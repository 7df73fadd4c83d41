"""A generation says how it was built, and one without a word is of version 1."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.projections.tables.origins import (
    GenerationOrigin,
    check_origin,
    forget_origin,
    note_origin,
    origin_of,
    origins_of,
)


async def test_an_origin_is_known_until_it_is_forgotten(read_models: Any) -> None:
    later = GenerationOrigin(version=3, as_of="2026-01-31T14:00Z")
    async with read_models.begin() as connection:
        await note_origin(connection, "totals", 4, later)
        assert await origin_of(connection, "totals", 4) == later
        assert await origin_of(connection, "totals", 5) == GenerationOrigin(version=1, as_of=None)
        assert await origins_of(connection, "other") == {}
        await forget_origin(connection, "totals", 4)
        assert await origins_of(connection, "totals") == {}


async def test_a_table_that_lacks_events_or_is_of_another_version_never_goes_live(
    read_models: Any, totals: Any
) -> None:
    async with read_models.begin() as connection:
        await note_origin(connection, "totals", 4, GenerationOrigin(as_of="0:17"))
        await note_origin(connection, "totals", 5, GenerationOrigin(version=2))
        await check_origin(connection, totals, 6)
        with pytest.raises(ProjectionError, match="is as of 0:17 and lacks later events"):
            await check_origin(connection, totals, 4)
        with pytest.raises(ProjectionError, match="built by version 2 and this code has version 1"):
            await check_origin(connection, totals, 5)
