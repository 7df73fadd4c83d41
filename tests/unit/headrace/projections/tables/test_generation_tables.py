"""Which tables a projection's generations have, and what goes with one that is dropped."""

from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.errors import ProjectionError
from headrace.projections.tables.contents import write_offsets, write_versions
from headrace.projections.tables.generation_tables import check_free, drop, drop_others, find_all
from headrace.projections.tables.origins import GenerationOrigin, note_origin
from headrace.stores.database.tables import (
    projection_generations,
    projection_offsets,
    projection_versions,
)


async def test_a_dropped_generation_leaves_nothing(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    assert await read_models.begin_shadow(totals, "me") == 2
    target = read_models.target(totals, 2)
    async with read_models.begin() as connection:
        await write_offsets(connection, target, {("t", 0): 1})
        await write_versions(connection, target, {"a": 1})
        assert set(await find_all(connection, "totals")) == {1, 2}
        await drop(connection, "totals", 2)
        assert set(await find_all(connection, "totals")) == {1}
        for table in (projection_generations, projection_offsets, projection_versions):
            left = select(func.count()).select_from(table).where(table.c.generation == 2)
            assert await connection.scalar(left) == 0


async def test_a_generation_as_of_a_moment_is_kept(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    await read_models.begin_shadow(totals, "me")
    await read_models.abandon_shadow("totals", 2, "me")
    assert await read_models.begin_shadow(totals, "you", as_of="0:5") == 2
    async with read_models.begin() as connection:
        await drop_others(connection, "totals", {1})
        assert (await find_all(connection, "totals"))[2] == GenerationOrigin(as_of="0:5")


async def test_a_name_that_is_taken_is_refused(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    async with read_models.begin() as connection:
        await connection.run_sync(check_free, "others")
        for name in ("totals", "totals__1"):
            with pytest.raises(ProjectionError, match=f"another table or view named {name}"):
                await connection.run_sync(check_free, name)
        await note_origin(connection, "others", 1, GenerationOrigin())
        assert await find_all(connection, "others") == {}
