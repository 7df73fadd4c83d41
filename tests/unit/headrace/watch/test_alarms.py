"""Alarms by count and age of letters, on a clock that is moved by hand."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import delete

from headrace.errors import ProjectionError
from headrace.handlers.progress import HandlerProgress
from headrace.processes.instances import InstanceParking, take
from headrace.processes.progress import ProcessProgress
from headrace.settings import Settings
from headrace.stores.base import LetterState
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import parked_rows
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.testing.conformance.letters import letter
from headrace.transports.base import Incoming
from headrace.transports.local import LocalTransport
from headrace.watch.alarms import Alarm, Alarms
from tests.unit.headrace.readers import make_totals

SETTINGS = Settings(letters_alarm_count=2, letters_alarm_age_ms=60_000, alarm_check_ms=1)


@pytest.fixture
async def alarms(totals: Any, read_models: Any, clock: Any) -> Alarms:
    await read_models.ensure(totals)
    return Alarms(projections=["totals"], read_models=read_models, settings=SETTINGS, clock=clock)


async def park(models: Any, clock: Any, *keys: str, name: str = "totals") -> None:
    async with models.begin() as connection:
        for key in keys:
            await connection.execute(
                parked_rows.insert().values(
                    name=name,
                    generation=1,
                    aggregate_id=key,
                    topic="t",
                    queue_id=0,
                    message_offset=0,
                    parked_at=clock.now(),
                    **new_row(ValueError("no")),
                )
            )


async def test_letters_below_the_bounds_are_no_alarm(
    alarms: Alarms, read_models: Any, clock: Any, logs: Any
) -> None:
    await park(read_models, clock, "a")
    await park(read_models, clock, "a", "b", "c", name="somebody else's")
    clock.advance(59_999)
    await alarms.look()
    assert (alarms.current, logs) == ((), [])


async def test_too_many_letters_and_too_old_ones_are_logged_once_as_alarms(
    alarms: Alarms, read_models: Any, clock: Any, logs: Any
) -> None:
    await park(read_models, clock, "a", "b")
    await alarms.look()
    assert alarms.current == (Alarm(projection="totals", kind="letters", value=2, bound=2),)
    clock.advance(60_000)
    await alarms.look()
    await alarms.look()
    assert [(each.kind, each.value) for each in alarms.current] == [
        ("letters", 2),
        ("oldest letter", 60_000),
    ]
    assert [(each["log_level"], each["alarm"]) for each in logs] == [
        ("warning", "letters"),
        ("warning", "oldest letter"),
    ]


async def test_an_alarm_ends_with_its_cause(
    alarms: Alarms, read_models: Any, clock: Any, logs: Any
) -> None:
    await park(read_models, clock, "a", "b")
    await alarms.look()
    async with read_models.begin() as connection:
        await connection.execute(delete(parked_rows).where(parked_rows.c.aggregate_id == "b"))
    await alarms.look()
    assert alarms.current == ()
    assert [each["event"] for each in logs][-1] == "alarm is over"


async def test_a_database_that_is_away_is_looked_at_again(
    alarms: Alarms, read_models: Any, clock: Any, logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await park(read_models, clock, "a", "b")
    letters, failures = alarms._letters, [OSError("away")]

    async def failing() -> Any:
        if failures:
            raise failures.pop()
        return await letters()

    monkeypatch.setattr(alarms, "_letters", failing)
    task = asyncio.create_task(alarms.run())
    while not alarms.current:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert logs[0]["event"] == "letters could not be looked at"


async def test_event_handlers_have_alarms_too(read_models: Any, clock: Any) -> None:
    alarms = Alarms(
        projections=["handlers:mail"], read_models=read_models, settings=SETTINGS, clock=clock
    )
    for aggregate_id in ("a", "b"):
        await read_models.transact(
            partial(
                HandlerProgress("mail").park,
                message=Incoming(("shop.events", 0), 1, aggregate_id, "", {}, b""),
                version=0,
                error=ValueError("no"),
                now=clock.now(),
                letters_max=9,
            )
        )
    await alarms.look()
    assert alarms.current == (Alarm(projection="handlers:mail", kind="letters", value=2, bound=2),)


async def test_foreign_messages_are_an_alarm_from_the_first_on(
    read_models: Any, clock: Any, logs: Any
) -> None:
    count = 0
    alarms = Alarms(
        projections=[], read_models=read_models, settings=SETTINGS, clock=clock,
        foreign=lambda: ("shop.events", count),
    )  # fmt: skip
    await alarms.look()
    assert alarms.current == ()
    count = 3
    await alarms.look()
    assert alarms.current == (
        Alarm(projection="shop.events", kind="foreign messages", value=3, bound=1),
    )
    (told,) = logs
    assert told["event"] == "alarm: a foreign program writes to the event topic"


@pytest.mark.parametrize("kind", ["lineage", "groups contradict"])
async def test_a_topic_that_cannot_be_read_is_an_alarm_until_it_can(
    read_models: Any, clock: Any, kind: str
) -> None:
    stands = True
    name = {"lineage": "refused", "groups contradict": "contested"}[kind]
    alarms = Alarms(
        projections=[], read_models=read_models, settings=SETTINGS, clock=clock,
        **{name: lambda: ("shop.events", stands)},
    )  # fmt: skip
    await alarms.look()
    assert alarms.current == (Alarm(projection="shop.events", kind=kind, value=1, bound=1),)
    stands = False
    await alarms.look()
    assert alarms.current == ()


async def test_process_managers_have_alarms_too_for_aggregates_and_instances(
    read_models: Any, clock: Any, make_process: Any, serializer: Any, domain: Any
) -> None:
    alarms = Alarms(
        projections=["process:copies", "instances:copies"],
        read_models=read_models,
        settings=SETTINGS,
        clock=clock,
    )
    await read_models.transact(
        partial(
            take,
            process=make_process(refuses=[1]),
            streams=[domain.stream("a", 1), domain.stream("b", 1, domain.Added(amount=2))],
            serializer=serializer,
            now=clock.now(),
            parking=InstanceParking(),
        )
    )
    await alarms.look()
    assert alarms.current == ()
    clock.advance(5_000)
    await read_models.transact(
        partial(
            ProcessProgress("copies").park_at,
            message=Incoming(("shop.events", 0), 1, "c", "", {}, b""),
            version=0,
            error=ValueError("no"),
            now=clock.now(),
            letters_max=9,
        )
    )
    clock.advance(55_000)
    await alarms.look()
    assert alarms.current == (
        Alarm(projection="instances:copies", kind="oldest letter", value=60_000, bound=60_000),
    )
    alarms.check_room()
    await read_models.transact(
        partial(
            take,
            process=make_process(refuses=[1]),
            streams=[domain.stream("d", 1)],
            serializer=serializer,
            now=clock.now(),
            parking=InstanceParking(),
        )
    )
    await alarms.look()
    assert Alarm(projection="instances:copies", kind="letters", value=2, bound=2) in alarms.current


async def test_readers_that_wait_for_room_are_an_alarm_until_there_is_room(
    read_models: Any, clock: Any
) -> None:
    alarms = Alarms(
        projections=["process:copies", "totals"],
        read_models=read_models,
        settings=SETTINGS.model_copy(update={"projection_letters_max": 2}),
        clock=clock,
    )
    progress = ProcessProgress("copies")
    for aggregate_id in ("a", "b"):
        await alarms.look()
        alarms.check_room()
        await read_models.transact(
            partial(
                progress.park_at,
                message=Incoming(("shop.events", 0), 1, aggregate_id, "", {}, b""),
                version=0,
                error=ValueError("no"),
                now=clock.now(),
                letters_max=2,
            )
        )
    await alarms.look()
    with pytest.raises(ProjectionError, match=r"the next one waits: process:copies \(2\)"):
        alarms.check_room()
    letter = await read_models.transact(partial(progress.parked.find, aggregate_id="a"))
    assert await read_models.transact(partial(progress.parked.release, letter=letter))
    await alarms.look()
    alarms.check_room()


async def test_parked_commands_are_an_alarm_and_stand_still_when_there_is_no_more_room(
    read_models: Any, clock: Any, logs: Any
) -> None:
    commands = MemoryCommandLetters()
    alarms = Alarms(
        projections=["totals"],
        read_models=read_models,
        settings=SETTINGS.model_copy(update={"command_letters_max": 3}),
        clock=clock,
        commands=commands,
    )
    first = replace(letter("a", "1", LetterState.HOLDING), parked_at=clock.now())
    await commands.park([first])
    await alarms.look()
    assert alarms.current == ()
    clock.advance(60_000)
    held = replace(letter("a", "2", LetterState.HELD), parked_at=clock.now())
    await commands.park([held])
    await alarms.look()
    assert [(each.projection, each.kind, each.value) for each in alarms.current] == [
        ("commands", "letters", 2),
        ("commands", "oldest letter", 60_000),
    ]
    alarms.check_room()
    await commands.park([replace(held, command_id="3")])
    await alarms.look()
    with pytest.raises(ProjectionError, match=r"commands \(3\); use `headrace parked retry`"):
        alarms.check_room()
    for each in await commands.read():
        assert await commands.finish(each)
    await alarms.look()
    alarms.check_room()
    assert (alarms.current, logs[-1]["projection"]) == ((), "commands")


async def test_a_group_that_an_operator_paused_is_an_alarm_also_while_the_queue_is_away(
    read_models: Any, logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [[], ["shop.commands"], ConnectionError("away"), []]

    async def paused() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    transport = LocalTransport()
    monkeypatch.setattr(transport, "paused", paused)
    alarms = Alarms(
        projections=["totals"], read_models=read_models, settings=SETTINGS, transport=transport
    )
    stands = Alarm(projection="group:shop.commands", kind="paused by an operator", value=1, bound=1)
    for expected in ((), (stands,), (stands,), ()):
        await alarms.look()
        assert alarms.current == expected
    told = [(each["log_level"], each.get("projection")) for each in logs if "alarm" in each]
    assert told == [("warning", "group:shop.commands"), ("info", "group:shop.commands")]


async def test_rows_of_another_version_are_an_alarm_until_they_are_rebuilt(
    totals: Any, read_models: Any, logs: Any
) -> None:
    await read_models.ensure(totals)
    second = make_totals(version=2)
    alarms = Alarms(
        projections=["totals"], read_models=read_models, settings=SETTINGS, versions={"totals": 2}
    )
    await alarms.look()
    assert alarms.current == (Alarm(projection="totals", kind="version", value=1, bound=2),)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    await read_models.begin_shadow(second, "me")
    await read_models.switch(second, 2, "me")
    await alarms.look()
    assert alarms.current == ()


async def test_parked_letters_of_the_last_look_are_known_with_their_age(
    alarms: Alarms, read_models: Any, clock: Any
) -> None:
    assert alarms.parked == {}
    await park(read_models, clock, "a")
    since = clock.now()
    clock.advance(1_000)
    await park(read_models, clock, "b")
    await alarms.look()
    assert alarms.parked == {"totals": (2, since)}
