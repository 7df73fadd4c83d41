"""A task's own connection: one of so many, and clear about what keeps it from the database."""

import asyncio
from contextlib import closing

import pytest
from sqlalchemy import make_url

from headrace.errors import ProjectionError
from headrace.spark.result import connection
from headrace.spark.result.connection import TaskConnection, place_in


def opened(url: str, connections_max: int) -> TaskConnection:
    return TaskConnection(
        url, "t__2", projection="p", doing="trying t__2", connections_max=connections_max
    )


async def in_thread(url: str, connections_max: int) -> int:
    """Runs a task in a thread: it has an event loop of its own."""

    async def ask(own: TaskConnection) -> int:
        first = await own.enter()
        assert await own.enter() is first
        found: int = (await first.exec_driver_sql("SELECT 7")).scalar_one()
        return found

    def run() -> int:
        with closing(opened(url, connections_max)) as own:
            return own.run(ask(own))

    return await asyncio.to_thread(run)


async def test_a_task_has_one_connection_and_leaves_its_place_to_the_next(
    postgres_database: str,
) -> None:
    for _ in range(2):
        assert await in_thread(postgres_database, 1) == 7


async def test_a_task_waits_for_a_connection_and_not_for_ever(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TURN_MS_MAX", -1)
    with pytest.raises(ProjectionError, match=r"became free for .* allow more of them"):
        await in_thread(postgres_database, 0)


async def test_a_refusal_says_what_was_being_done(postgres_database: str) -> None:
    async def refused(own: TaskConnection) -> None:
        await (await own.enter()).exec_driver_sql("SELECT * FROM nothing")

    def run() -> None:
        with closing(opened(postgres_database, 1)) as own:
            own.run(refused(own))

    with pytest.raises(ProjectionError, match=r"p: trying t__2 failed on .* does not exist"):
        await asyncio.to_thread(run)


def test_a_place_is_told_without_credentials() -> None:
    assert place_in("postgresql://me:secret@db.example:6432/read") == "db.example:6432"
    assert place_in("postgresql://me:secret@db/read") == "db:5432"
    socket_url = make_url("postgresql://me@/read").update_query_dict({"host": "/run/pg"})
    assert place_in(socket_url.render_as_string()) == "/run/pg"
