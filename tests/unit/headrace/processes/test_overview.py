"""What a person sees of instances: what runs, what stands still, and why."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from headrace.errors import InstanceNotFound
from headrace.processes import overview
from headrace.processes.instances import WAITS, InstanceParking, parked_instances, take
from headrace.processes.kept_commands import mark_sent
from headrace.processes.overview import Processes
from headrace.stores.database.tables import process_journal


@pytest.fixture
def give(read_models: Any, serializer: Any, clock: Any) -> Callable[..., Any]:
    async def run(process: Any, *streams: Any) -> Any:
        taken = await read_models.transact(
            partial(
                take,
                process=process,
                streams=streams,
                serializer=serializer,
                now=clock.now(),
                parking=InstanceParking(),
            )
        )
        return [one.command_id for one in taken.commands]

    return run


@pytest.fixture
def processes(read_models: Any, clock: Any) -> Processes:
    return Processes(read_models, clock=clock)


async def test_an_instance_is_shown_with_state_last_event_and_pending_commands(
    read_models: Any, make_process: Any, domain: Any, give: Any, processes: Processes, clock: Any
) -> None:
    ids = await give(make_process(), domain.stream("a", 1))
    await read_models.transact(partial(mark_sent, process="copies", command_ids=ids))
    began = clock.now()
    clock.advance(1_000)
    await give(make_process(), domain.stream("a", 2))
    found = await processes.get("copies", "a")
    assert found.state == {"sum": 3, "trouble": ""}
    assert (found.began_at, found.changed_at) == (began, clock.now())
    assert (found.last_event, found.last_aggregate_id, found.seen) == ("Added", "a", 2)
    assert [(one.name, one.aggregate_id, one.due) for one in found.pending] == [
        ("Add", "a-copy", None)
    ]
    assert found.stuck == ()
    with pytest.raises(InstanceNotFound):
        await processes.get("copies", "b")


async def test_each_reason_why_an_instance_is_stuck_is_shown(
    read_models: Any, make_process: Any, domain: Any, give: Any, processes: Processes, clock: Any
) -> None:
    process = make_process([2])
    process._on_rejection.clear()
    await give(process, domain.stream("fine", 1))
    await give(process, domain.stream("parked", 1), domain.stream("parked", 2))
    [refused, *_] = await give(process, domain.stream("refused", 1))
    await give(process, domain.rejection("refused-copy", refused))
    assert {one.key for one in await processes.all(stuck=True)} == {"parked", "refused"}
    parked, rejected = await processes.all(stuck=True)
    assert [one.kind for one in (*parked.stuck, *rejected.stuck)] == ["parked", "rejected"]
    assert parked.waiting == 1
    assert "2 is not bearable" in parked.stuck[0].sentence
    assert rejected.stuck[0].sentence == "Add to refused-copy: No: no"


async def test_a_timeout_without_effect_is_overdue_and_one_with_an_effect_is_not(
    make_process: Any, domain: Any, give: Any, processes: Processes, clock: Any
) -> None:
    noted = domain.stream("x", 1, domain.Noted(text="late"), domain.Noted(text="moved"))
    due = noted.recorded_at
    clock._start = due - timedelta(minutes=5)
    await give(make_process(), domain.stream("late", 1), domain.stream("moved", 1), noted)
    late = await processes.get("copies", "late")
    assert [one.due for one in late.pending] == [None, due, None]
    clock.advance(5 * 60_000 + 1)
    await give(make_process(), domain.stream("moved", 2))
    assert await processes.all(stuck=True) == []  # it may be on its way
    clock.advance(60_000)
    [overdue] = await processes.all(stuck=True)
    assert (overdue.key, [one.kind for one in overdue.stuck]) == ("late", ["overdue"])
    assert "Add to reminders was due at 2026-01-01 00:00:01 UTC" in overdue.stuck[0].sentence


async def test_lists_leave_out_what_has_ended_and_come_in_pages(
    make_process: Any, domain: Any, give: Any, processes: Processes
) -> None:
    await give(make_process(), *(domain.stream(key, 1) for key in "abcd"))
    await give(make_process(), domain.stream("b", 2, domain.Cleared()))
    assert [one.key for one in await processes.all("copies")] == ["a", "c", "d"]
    assert [one.key for one in await processes.all(ended=True, limit=2)] == ["a", "b"]
    assert [one.key for one in await processes.all(ended=True, after=("copies", "b"))] == ["c", "d"]
    assert await processes.all("others") == []


async def test_instances_are_counted_by_process_and_their_steps_are_in_order(
    make_process: Any, domain: Any, give: Any, processes: Processes
) -> None:
    for key, version in (("a", 1), ("a", 2), ("b", 1)):
        await give(make_process(), domain.stream(key, version))
    (count,) = await processes.counts()
    assert (count.process, count.running, count.parked, count.ended) == ("copies", 2, 0, 0)
    steps = await processes.steps("copies", "a")
    assert [(one.number, one.aggregate_id, one.outcome) for one in steps] == [
        (1, "a", "done"),
        (2, "a", "done"),
    ]
    assert [one.number for one in await processes.steps("copies", "a", after=1, limit=5)] == [2]
    assert await processes.steps("copies", "nothing") == []


async def test_a_stream_that_waits_is_found_behind_any_of_many_parked_instances(
    read_models: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def park(connection: Connection) -> None:
        for number, key in enumerate("xyz", start=1):
            parked_instances("copies").add(
                connection, key, ValueError("no"), now=clock.now(), place=None
            )
            connection.execute(
                insert(process_journal).values(
                    process="copies", instance=key, number=number, aggregate_id="a",
                    command_id=f"c-{key}", outcome=WAITS,
                )
            )  # fmt: skip

    await read_models.transact(park)
    monkeypatch.setattr(overview, "_INSTANCES_MAX", 2)
    found = Processes(read_models)
    assert await found.parked_behind("copies", "a", "c-z") == "z"
    assert await found.parked_behind("copies", "a", "c-x") == "x"
    assert await found.parked_behind("copies", "b", "c-x") is None
    assert await found.parked_behind("others", "a", "c-x") is None
