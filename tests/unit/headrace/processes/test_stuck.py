"""Parked instances taken up again, states made anew, both from the event store."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headrace.errors import InstanceNotFound, ProcessError, SubjectKeysAway
from headrace.processes.instances import (
    InstanceParking,
    ReactionFailed,
    parked_instances,
    read_instances,
    take,
)
from headrace.processes.kept_commands import find_unsent, mark_sent
from headrace.processes.stuck import StuckInstances


@pytest.fixture
def give(sqlite_models: Any, serializer: Any, clock: Any, store: Any) -> Callable[..., Any]:
    """Gives streams to a process, parking what fails; they are in the store as well."""

    async def run(process: Any, *streams: Any) -> Any:
        store.streams += streams
        taken = await sqlite_models.transact(
            partial(
                take,
                process=process,
                streams=streams,
                serializer=serializer,
                now=clock.now(),
                parking=InstanceParking(),
            )
        )
        ids = [one.command_id for one in taken.commands]
        await sqlite_models.transact(partial(mark_sent, process="copies", command_ids=ids))

    return run


@pytest.fixture
def stuck(sqlite_models: Any, serializer: Any, clock: Any, store: Any) -> Callable[..., Any]:
    return partial(
        StuckInstances,
        read_models=sqlite_models,
        store=store,
        serializer=serializer,
        clock=clock,
    )


@pytest.fixture
def look(sqlite_models: Any, serializer: Any, clock: Any) -> Callable[..., Any]:
    """Returns the instance `a`, what is parked of it, and the amounts of the commands to be sent."""

    async def run() -> Any:
        unsent = await sqlite_models.transact(
            partial(
                find_unsent,
                process="copies",
                made_before=clock.now(),
                now=clock.now(),
                due_before=clock.now(),
                serializer=serializer,
            )
        )
        found = await sqlite_models.transact(partial(read_instances, process="copies", keys=["a"]))
        letter = await sqlite_models.transact(
            partial(parked_instances("copies").find, aggregate_id="a")
        )
        assert found["a"].parked == (letter is not None)
        return found["a"], letter, [one.command.model_dump()["amount"] for one in unsent]

    return run


async def test_a_retry_after_a_repair_handles_waiting_events_in_order(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process([2]), *(domain.stream("a", version) for version in (1, 2, 3)))
    assert await stuck(make_process()).retry("a") is None
    found, letter, unsent = await look()
    assert (letter, found.state) == (None, '{"sum":6,"trouble":""}')
    assert unsent == [3, 6]


async def test_a_retry_that_needs_keys_that_are_away_changes_nothing(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any, serializer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def away(_: object) -> bytes:
        raise SubjectKeysAway("the keys are away")

    await give(make_process([2]), *(domain.stream("a", version) for version in (1, 2, 3)))
    before = await look()
    with monkeypatch.context() as patched:
        patched.setattr(serializer, "encode_command", away)
        with pytest.raises(SubjectKeysAway):
            await stuck(make_process()).retry("a")
    assert await look() == before
    assert await stuck(make_process()).retry("a") is None


async def test_a_retry_that_fails_keeps_its_progress(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any, clock: Any
) -> None:
    await give(make_process([2]), *(domain.stream("a", version) for version in (1, 2, 3, 4)))
    since = clock.now()
    clock.advance(1_000)
    left = await stuck(make_process([3])).retry("a")
    assert left.error == "Added of a: RuntimeError('3 is not bearable')"
    assert left.traceback.endswith("RuntimeError: 3 is not bearable")
    found, letter, unsent = await look()
    assert (letter, await stuck(make_process()).all()) == (left, [left])
    assert (letter.retries, letter.held, letter.parked_at) == (1, 2, since)
    assert found.state == '{"sum":3,"trouble":""}'
    assert unsent == [3]
    assert await stuck(make_process()).retry("a") is None
    assert (await look())[2] == [3, 6, 10]


async def test_skip_leaves_out_one_stream_for_good(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process([2]), *(domain.stream("a", version) for version in (1, 2, 3)))
    assert await stuck(make_process([2])).skip("a") is None
    _, letter, unsent = await look()
    assert (letter, unsent) == (None, [4])
    # Not even a state that is made anew sees it.
    await stuck(make_process(state_version=2)).refold("a")
    assert (await look())[0].state == '{"sum":4,"trouble":""}'


async def test_an_instance_whose_first_event_failed_begins_with_the_retry(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process([1]), domain.stream("a", 1), domain.stream("a", 2))
    assert (await look())[0].state is None
    assert await stuck(make_process()).retry("a") is None
    assert (await look())[2] == [1, 3]


async def test_an_instance_that_ends_during_a_retry_skips_the_other_waiting_streams(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(
        make_process([1]),
        domain.stream("a", 1),
        domain.stream("a", 2, domain.Cleared()),
        domain.stream("a", 3),
    )
    assert await stuck(make_process()).retry("a") is None
    found, _, unsent = await look()
    assert (found.ended, unsent) == (True, [1, -1])


async def test_a_state_is_rebuilt_from_seen_streams_and_sends_nothing(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process(), *(domain.stream("a", version) for version in (1, 2)))
    await stuck(make_process(state_version=2, factor=10)).refold("a")
    found, _, unsent = await look()
    assert (found.state, found.state_version, unsent) == ('{"sum":30,"trouble":""}', 2, [])


async def test_a_state_that_cannot_be_rebuilt_parks_the_instance(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process(), domain.stream("a", 1))
    await stuck(make_process([1], state_version=2)).refold("a")
    _, letter, _ = await look()
    assert "its state cannot be rebuilt: RuntimeError('1 is not bearable')" in letter.error
    assert (letter.held, letter.retries, letter.error_name) == (0, 0, "RuntimeError")
    # The second time it is the same failure, and no attempt more.
    await stuck(make_process([1], state_version=2)).refold("a")
    assert (await look())[1].retries == 0
    assert await stuck(make_process(state_version=2)).retry("a") is None
    assert (await look())[1] is None


async def test_a_state_that_cannot_be_rebuilt_waits_for_room(
    make_process: Any, domain: Any, give: Any, stuck: Any, look: Any
) -> None:
    await give(make_process(), domain.stream("a", 1))
    full = stuck(make_process([1], state_version=2), room=0)
    with pytest.raises(ReactionFailed, match="as many instances as may be are parked, and now 'a'"):
        await full.refold("a")
    found, letter, _ = await look()
    assert (letter, found.state_version) == (None, 1)


async def test_an_instance_that_todays_code_ends_has_no_waiting_streams(
    make_process: Any,
    domain: Any,
    give: Any,
    stuck: Any,
    look: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await give(make_process([2]), *(domain.stream("a", version) for version in (1, 2, 3)))
    process = make_process([2])
    refold = process.refold

    def ended(key: str, streams: Any) -> Any:
        return replace(refold(key, streams), ended=True)

    monkeypatch.setattr(process, "refold", ended)
    assert await stuck(process).retry("a") is None
    found, letter, _ = await look()
    assert (found.ended, letter) == (True, None)
    with pytest.raises(InstanceNotFound, match="is not parked"):
        await stuck(process).retry("a")


async def test_an_unknown_instance_and_one_that_is_not_parked_get_different_errors(
    make_process: Any, domain: Any, give: Any, stuck: Any
) -> None:
    await give(make_process(), domain.stream("a", 1))
    with pytest.raises(InstanceNotFound, match="'a' of process copies is not parked"):
        await stuck(make_process()).retry("a")
    with pytest.raises(InstanceNotFound, match="copies has no instance 'b'"):
        await stuck(make_process()).skip("b")


async def test_a_retry_with_another_event_store_is_refused(
    make_process: Any, domain: Any, give: Any, stuck: Any, store: Any
) -> None:
    await give(make_process([1]), domain.stream("a", 1))
    store.streams.clear()
    with pytest.raises(ProcessError, match="command a-1 did to a is not in the event store"):
        await stuck(make_process()).retry("a")
