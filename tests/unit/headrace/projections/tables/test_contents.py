"""What the tables hold of a generation, read and written in bulk."""

from typing import Any

import pytest

from headrace.projections.tables.contents import (
    Moved,
    Switched,
    begin_at,
    find_rows,
    find_versions,
    read_offsets,
    write_offsets,
    write_rows,
    write_versions,
)

Q0, Q1 = ("t", 0), ("t", 1)


@pytest.fixture
async def target(read_models: Any, totals: Any) -> Any:
    await read_models.ensure(totals)
    return read_models.target(totals, 1)


async def test_written_rows_are_found_and_missing_keys_are_left_out(
    read_models: Any, target: Any, domain: Any
) -> None:
    row = domain.Total(counter_id="a", total=3, folded=2)
    async with read_models.begin() as connection:
        await write_rows(connection, target, {"a": row})
        await write_versions(connection, target, {"a": 2})
        await write_offsets(connection, target, {Q0: 5, Q1: 1})
    async with read_models.begin() as connection:
        assert await connection.run_sync(find_rows, target, ["a", "b"]) == {"a": row}
        assert await connection.run_sync(find_versions, target, ["a", "b"]) == ({"a": 2}, set())
        assert await read_offsets(connection, "totals", 1) == {Q0: 5, Q1: 1}


async def test_later_values_take_the_place_of_earlier_ones_and_none_deletes_a_row(
    read_models: Any, target: Any, domain: Any
) -> None:
    for number in (1, 2):
        async with read_models.begin() as connection:
            row = domain.Total(counter_id="a", total=number)
            await write_rows(connection, target, {"a": row})
            await write_versions(connection, target, {"a": number})
            await write_offsets(connection, target, {Q0: number})
    async with read_models.begin() as connection:
        assert (await connection.run_sync(find_rows, target, ["a"]))["a"].total == 2
        assert await connection.run_sync(find_versions, target, ["a"]) == ({"a": 2}, set())
        assert await read_offsets(connection, "totals", 1) == {Q0: 2}
        await write_rows(connection, target, {"a": None})
        assert await connection.run_sync(find_rows, target, ["a"]) == {}


async def test_a_batch_does_not_begin_on_a_generation_that_stands_elsewhere_or_is_unused(
    read_models: Any, target: Any, totals: Any
) -> None:
    async with read_models.begin() as connection:
        await write_offsets(connection, target, {Q0: 5})
    async with read_models.begin() as connection:
        assert await connection.run_sync(begin_at, target, {Q0: 5, Q1: None}) is None
        assert await connection.run_sync(begin_at, target, {Q0: 4}) == Moved(offsets={Q0: 5})
        other = read_models.target(totals, 2)
        assert await connection.run_sync(begin_at, other, {}) == Switched(generation=1)
