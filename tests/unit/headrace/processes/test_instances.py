"""A batch in one transaction: states, journal and commands move together, each stream once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from headrace.errors import SubjectKeysAway
from headrace.processes.instances import (
    Instance,
    InstanceParking,
    Outdated,
    ReactionFailed,
    Taken,
    parked_instances,
    read_instances,
    take,
)
from headrace.processes.kept_commands import find_unsent, mark_sent
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.tables import process_commands, process_journal


@pytest.fixture
def give(serializer: Any, clock: Any) -> Callable[..., Any]:
    """Gives streams to a process in one transaction."""

    async def run(
        models: ReadModels, process: Any, *streams: Any, parking: InstanceParking | None = None
    ) -> Any:
        return await models.transact(
            partial(
                take,
                process=process,
                streams=streams,
                serializer=serializer,
                now=clock.now(),
                parking=parking,
            )
        )

    return run


async def instance(models: ReadModels, key: str) -> Instance | None:
    found = await models.transact(partial(read_instances, process="copies", keys=[key]))
    return found.get(key)


async def outcomes(models: ReadModels, key: str) -> list[str]:
    columns = process_journal.c
    query = select(columns.outcome).where(columns.instance == key).order_by(columns.number)
    return await models.transact(lambda connection: list(connection.scalars(query)))


def amounts(taken: Taken) -> list[int]:
    return [one.command.model_dump()["amount"] for one in taken.commands]


async def test_a_batch_moves_every_instance_that_it_concerns(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any, clock: Any
) -> None:
    process = make_process()
    taken = await give(
        read_models,
        process,
        domain.stream("a", 1),
        domain.stream("b", 1, domain.Added(amount=7)),
        domain.stream("a", 2),
        domain.stream("c", 1, domain.Noted(text="nobody there")),
    )
    assert amounts(taken) == [1, 7, 3]
    found = await instance(read_models, "a")
    assert found is not None
    assert (found.seen, found.sent, found.last_event, found.ended) == (2, 2, "Added", False)
    assert (found.began_at, found.changed_at) == (clock.now(), clock.now())
    assert await instance(read_models, "nobody there") is None


async def test_a_stream_that_comes_again_changes_nothing_in_any_batch(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process = make_process()
    first, second = domain.stream("a", 1), domain.stream("a", 2)
    await give(read_models, process, first)
    taken = await give(read_models, process, first, second, first, second)
    assert amounts(taken) == [3]
    before = await instance(read_models, "a")
    assert (await give(read_models, process, second, first)).commands == ()
    assert await instance(read_models, "a") == before


async def test_a_handler_that_raises_undoes_the_whole_batch(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process = make_process([2])
    with pytest.raises(ReactionFailed, match="2 is not bearable") as caught:
        await give(
            read_models,
            process,
            domain.stream("b", 1),
            domain.stream("a", 1, domain.Added(amount=2)),
        )
    assert (caught.value.key, caught.value.aggregate_id) == ("a", "a")
    assert await instance(read_models, "b") is None


async def test_a_parked_instance_keeps_its_streams_in_order(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any, clock: Any
) -> None:
    process = make_process([2])
    await give(read_models, process, domain.stream("a", 1))
    taken = await give(
        read_models,
        process,
        domain.stream("a", 2),
        domain.stream("b", 1),
        domain.stream("a", 3),
        parking=InstanceParking(places={("a", "a-2"): ("shop.events", 3, 42)}),
    )
    assert amounts(taken) == [1]
    assert (await give(read_models, process, domain.stream("a", 4))).commands == ()
    found = await instance(read_models, "a")
    assert found is not None
    assert (found.seen, found.parked) == (4, True)
    (letter,) = await read_models.transact(parked_instances("copies").read)
    assert (letter.aggregate_id, letter.parked_at, letter.held) == ("a", clock.now(), 3)
    assert (letter.queue, letter.offset, letter.retries) == (("shop.events", 3), 42, 0)
    assert letter.error == "Added of a: RuntimeError('2 is not bearable')"
    assert letter.error_name == "RuntimeError"
    assert letter.traceback.endswith("RuntimeError: 2 is not bearable")
    assert await outcomes(read_models, "a") == ["done", "waits", "waits", "waits"]


async def test_an_instance_whose_commands_need_keys_that_are_away_is_not_parked(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any, serializer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def away(_: object) -> bytes:
        raise SubjectKeysAway("the keys are away")

    with monkeypatch.context() as patched:
        patched.setattr(serializer, "encode_command", away)
        with pytest.raises(SubjectKeysAway):
            await give(
                read_models, make_process(), domain.stream("a", 1), parking=InstanceParking()
            )
    assert await instance(read_models, "a") is None
    await give(read_models, make_process(), domain.stream("a", 1), parking=InstanceParking())
    assert await outcomes(read_models, "a") == ["done"]


async def test_parked_instances_have_a_limit_above_which_nothing_is_written(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process, parking = make_process([1]), InstanceParking(room=2)
    await give(read_models, process, domain.stream("a", 1), parking=parking)
    more = [domain.stream("b", 1), domain.stream("c", 1)]
    with pytest.raises(ReactionFailed, match="as many instances as may be are parked, and now 'c'"):
        await give(read_models, process, *more, parking=parking)
    assert await instance(read_models, "b") is None
    await give(read_models, process, more[0], parking=parking)
    assert await read_models.transact(parked_instances("copies").count) == 2
    # What is parked already waits for more.
    await give(read_models, process, domain.stream("b", 2), parking=parking)
    found = await read_models.transact(partial(parked_instances("copies").find, aggregate_id="b"))
    assert found.held == 2


async def test_an_instance_that_has_ended_does_not_change(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process = make_process()
    taken = await give(
        read_models,
        process,
        domain.stream("a", 1),
        domain.stream("a", 2, domain.Cleared()),
        domain.stream("a", 3),
    )
    assert amounts(taken) == [1, -1]
    found = await instance(read_models, "a")
    assert found is not None
    assert (found.ended, found.seen) == (True, 2)


async def test_a_rejection_finds_the_instance_that_sent_the_command(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process = make_process()
    sent = await give(read_models, process, domain.stream("a", 1))
    rejection = domain.rejection("a-copy", sent.commands[0].command_id)
    taken = await give(read_models, process, rejection, rejection)
    assert amounts(taken) == [-1]  # compensated once
    found = await instance(read_models, "a")
    assert found is not None
    assert found.state == '{"sum":1,"trouble":"5: no"}'
    stranger = domain.rejection("a-copy", "somebody else's")
    assert (await give(read_models, process, stranger)).commands == ()


async def test_a_rejection_without_a_handler_is_noted_at_its_command(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    process = make_process()
    process._on_rejection.clear()
    sent = await give(read_models, process, domain.stream("a", 1))
    await give(read_models, process, domain.rejection("a-copy", sent.commands[0].command_id))
    refused = select(process_commands.c.refused)
    assert await read_models.transact(lambda one: list(one.scalars(refused))) == ["No: no"]


async def test_states_of_another_version_are_named_and_nothing_is_written(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any
) -> None:
    await give(read_models, make_process(), domain.stream("a", 1))
    before = await instance(read_models, "a")
    outcome = await give(
        read_models, make_process(state_version=2), domain.stream("b", 1), domain.stream("a", 2)
    )
    assert outcome == Outdated(keys=frozenset({"a"}))
    assert await instance(read_models, "a") == before
    assert await instance(read_models, "b") is None


async def test_commands_stay_until_they_are_sent_and_their_instance_has_ended(
    read_models: ReadModels, make_process: Any, domain: Any, give: Any, serializer: Any, clock: Any
) -> None:
    process = make_process()
    taken = await give(
        read_models,
        process,
        domain.stream("a", 1),
        domain.stream("a", 2, domain.Noted(text="a")),
        domain.stream("b", 1),
        domain.stream("b", 2, domain.Cleared()),
    )

    async def unsent() -> list[Any]:
        return await read_models.transact(
            partial(
                find_unsent,
                process="copies",
                made_before=clock.now(),
                now=clock.now(),
                due_before=clock.now(),
                serializer=serializer,
            )
        )

    assert sorted(await unsent(), key=lambda one: one.command_id) == sorted(
        taken.commands, key=lambda one: one.command_id
    )
    assert [one.due is not None for one in await unsent()] == [False, True, False, False, False]
    ids = [one.command_id for one in taken.commands]
    await read_models.transact(partial(mark_sent, process="copies", command_ids=ids))
    assert await unsent() == []
    keys = select(process_commands.c.instance).distinct()
    assert await read_models.transact(lambda one: list(one.scalars(keys))) == ["a"]
