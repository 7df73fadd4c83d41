"""No statement of an append reads the whole table, whatever the planner knows of it."""

import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import make_url

from headrace.stores.database.schema import upgrade
from headrace.stores.database.statements import load_statement
from headrace.stores.postgres.partitions import reshard

# Each bind of the statements: type, and any value of it.
POSTGRES_BINDS = {
    "turn": ("bigint", "1"),
    "head_ids": ("varchar[]", "'{a,b}'"),
    "head_versions": ("bigint[]", "'{1,2}'"),
    "aggregate_ids": ("varchar[]", "'{a,b}'"),
    "aggregate_types": ("varchar[]", "'{t,t}'"),
    "versions": ("bigint[]", "'{2,3}'"),
    "command_ids": ("varchar[]", "'{c,d}'"),
    "recorded_ats": ("timestamptz[]", "'{2026-01-31,2026-01-31}'"),
    "bodies": ("text[]", "'{x,y}'"),
    "checksums": ("bigint[]", "'{1,2}'"),
}


async def _plan(connection: asyncpg.Connection, name: str) -> str:
    statement = load_statement("headrace.stores.postgres", name)
    used = [bind for bind in POSTGRES_BINDS if f":{bind}" in statement]
    numbered = re.sub(r":(\w+)", lambda bind: f"${used.index(bind[1]) + 1}", statement)
    types = ", ".join(POSTGRES_BINDS[bind][0] for bind in used)
    values = ", ".join(POSTGRES_BINDS[bind][1] for bind in used)
    await connection.execute(f"PREPARE {name} ({types}) AS {numbered}")
    try:
        # Typed out each time, because the driver would keep a statement that is prepared anew.
        rows = await connection.fetch(f"EXPLAIN EXECUTE {name} ({values})")
    finally:
        await connection.execute(f"DEALLOCATE {name}")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("name", ["append", "heads", "commands"])
async def test_postgresql_looks_rows_up_by_index_from_the_first_row_on(
    postgres_database: str, name: str, mode: str, shards: int
) -> None:
    await upgrade(postgres_database)
    await reshard(postgres_database, shards)
    url = make_url(postgres_database)
    connection = await asyncpg.connect(
        host=str(url.query["host"]),
        user=url.username,
        database=url.database,
        statement_cache_size=0,
    )
    try:
        await connection.execute(f"SET plan_cache_mode = {mode}")
        empty = await _plan(connection, name)
        await connection.execute(
            "INSERT INTO event_streams"
            " (aggregate_id, aggregate_type, version, command_id, recorded_at, body)"
            " SELECT 'a' || n, 't', 1, 'c' || n, now(), 'x' FROM generate_series(1, 2000) AS n"
        )
        await connection.execute("ANALYZE event_streams")
        filled = await _plan(connection, name)
    finally:
        await connection.close()
    for plan in (empty, filled):
        assert "Seq Scan on event_streams" not in plan
        assert "Index" in plan


@pytest.mark.parametrize("name", ["append", "heads", "commands"])
async def test_sqlite_looks_rows_up_by_index(tmp_path: Path, name: str) -> None:
    await upgrade(f"sqlite:///{tmp_path / 'a.db'}")
    connection = sqlite3.connect(tmp_path / "a.db")
    statement = load_statement("headrace.stores.sqlite", name)
    statement = statement.replace("{rows}", "('a', 't', 2, 'd', '2026-01-31', 'x', 1)")
    statement = statement.replace("{heads}", "('a', 1)")
    binds = dict.fromkeys(re.findall(r":(\w+)", statement), "[]")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", binds)]
    connection.close()
    touched = [step for step in plan if "event_streams" in step or "stored" in step]
    assert touched
    assert all(step.startswith("SEARCH") and "(aggregate_id=?" in step for step in touched)
