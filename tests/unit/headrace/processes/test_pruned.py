"""Ended instances go after a while; what they have seen stays known."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.processes import pruned as pruning
from headrace.processes.instances import take
from headrace.processes.kept_commands import mark_sent
from headrace.processes.overview import Processes
from headrace.processes.pruned import count_ended, prune
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.tables import process_commands, process_journal

Give = Callable[..., Awaitable[Any]]


@pytest.fixture
def give(read_models: ReadModels, serializer: Any, clock: Any, make_process: Any) -> Give:
    async def run(*streams: Any, sent: bool = True) -> Any:
        taken = await read_models.transact(
            partial(
                take,
                process=make_process(),
                streams=streams,
                serializer=serializer,
                now=clock.now(),
            )
        )
        ids = [one.command_id for one in taken.commands] if sent else []
        await read_models.transact(partial(mark_sent, process="copies", command_ids=ids))
        return taken

    return run


async def keys(models: ReadModels) -> list[str]:
    return [one.key for one in await Processes(models).all("copies", ended=True)]


async def rows(models: ReadModels) -> list[int]:
    counts = [select(func.count()).select_from(one) for one in (process_journal, process_commands)]
    return await models.transact(lambda one: [one.execute(each).scalar_one() for each in counts])


async def test_instances_that_ended_before_a_moment_are_deleted_with_all_their_rows(
    read_models: ReadModels, domain: Any, give: Give, clock: Any
) -> None:
    await give(domain.stream("old", 1), domain.stream("old", 2, domain.Cleared()))
    await give(domain.stream("runs", 1))
    clock.advance(60_000)
    await give(domain.stream("new", 1), domain.stream("new", 2, domain.Cleared()))
    before = clock.now() - timedelta(seconds=30)
    assert await read_models.transact(partial(count_ended, process="copies", before=before)) == 1
    assert await read_models.transact(partial(count_ended, process="others", before=before)) == 0
    assert await read_models.transact(partial(prune, process="copies", before=before)) == 1
    assert await keys(read_models) == ["new", "runs"]
    assert await rows(read_models) == [3, 1]
    assert await read_models.transact(partial(prune, process="copies", before=before)) == 0


async def test_an_event_that_comes_again_after_its_instance_was_pruned_begins_none(
    read_models: ReadModels, domain: Any, give: Give, clock: Any
) -> None:
    streams = [domain.stream("a", 1), domain.stream("a", 2, domain.Cleared())]
    await give(*streams)
    clock.advance(1)
    await read_models.transact(partial(prune, process="copies", before=clock.now()))
    assert (await give(*streams)).commands == ()
    assert await keys(read_models) == []
    # A new event of the key is another story, and so another instance.
    await give(domain.stream("a", 3))
    assert await keys(read_models) == ["a"]


async def test_an_instance_stays_until_its_commands_are_sent(
    read_models: ReadModels, domain: Any, give: Give, clock: Any
) -> None:
    await give(domain.stream("a", 1), domain.stream("a", 2, domain.Cleared()), sent=False)
    clock.advance(1)
    assert await read_models.transact(partial(prune, process="copies", before=clock.now())) == 0
    assert await keys(read_models) == ["a"]


async def test_prune_deletes_a_few_instances_the_oldest_first(
    read_models: ReadModels,
    domain: Any,
    give: Give,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pruning, "PRUNED_MAX", 2)
    for key in ("c", "a", "b"):
        await give(domain.stream(key, 1), domain.stream(key, 2, domain.Cleared()))
        clock.advance(1)
    assert await read_models.transact(partial(prune, process="copies", before=clock.now())) == 2
    assert await keys(read_models) == ["b"]
