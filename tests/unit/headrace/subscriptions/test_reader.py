"""The reader: one loop that subscribes again, retries, parks and knows how it is doing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.errors import SubjectKeysAway
from headrace.settings import Settings
from headrace.subscriptions.reader import BatchReaction, KeyReaction, Reader
from headrace.subscriptions.status import ReaderState
from headrace.testing.history import FakeClock
from headrace.transports.base import Incoming, OffsetLoader
from headrace_mq.metrics.histogram import Histogram

MESSAGE = Incoming(("topic", 0), 0, "a", "", {}, b"")


class Stop(Exception):
    """Ends a test's reading."""


class Scripted:
    """A transport, its subscriptions and the pauses in one: each poll does what the script says."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.subscribed: list[tuple[str, list[str], OffsetLoader | None]] = []
        self.closed = 0
        self.pauses: list[int] = []
        self.acked: list[Incoming] = []
        self.polling = asyncio.Event()
        self.returned = asyncio.Event()

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> "Scripted":
        self.subscribed.append((group, list(topics), offsets))
        return self

    async def poll(self) -> list[Incoming]:
        self.polling.set()
        step = self.script.pop(0) if self.script else asyncio.Event()
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        self.returned.set()
        return step if isinstance(step, list) else [MESSAGE]

    def ack(self, message: Incoming) -> None:
        self.acked.append(message)

    async def aclose(self) -> None:
        self.closed += 1

    async def pause(self, attempt: int) -> None:
        self.pauses.append(attempt)

    def reader(self, **options: Any) -> Reader:
        reader = Reader(
            self,  # type: ignore[arg-type]  # as much of a transport as it needs
            group="g",
            topic="topic",
            settings=Settings(error_retries_max=2),
            about={"who": "w"},
            **options,
        )
        reader._backoff.pause = self.pause  # type: ignore[method-assign]  # no test waits
        return reader


class Collected(BatchReaction):
    """Collects what it gets, and says when."""

    def __init__(self) -> None:
        self.polls: list[list[Incoming]] = []
        self.begun = 0
        self.got = asyncio.Event()

    async def begin(self) -> None:
        self.begun += 1

    async def react(self, messages: list[Incoming]) -> None:
        self.polls.append(messages)
        self.got.set()


async def run_until(reading: Any, event: asyncio.Event) -> None:
    task = asyncio.create_task(reading)
    await event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_reader_closes_a_broken_subscription_and_subscribes_again_after_growing_pauses() -> (
    None
):
    lost = [ConnectionError("one"), ConnectionError("two")]
    scripted = Scripted(*lost, None, ConnectionError("three"), Stop())
    reader, reaction = scripted.reader(), Collected()
    with capture_logs() as logs, pytest.raises(Stop):
        await reader.run_by_batch(reaction, idle_ms=1_000, unless=(Stop,))
    assert scripted.subscribed == [("g", ["topic"], None)] * 4
    assert (scripted.closed, reaction.begun) == (4, 4)
    # The poll that brought something begins the count at one again.
    assert scripted.pauses == [1, 2, 1]
    assert [entry["attempt"] for entry in logs] == [1, 2, 1]
    assert reaction.polls == [[MESSAGE]]


async def test_a_readers_status_is_retrying_and_then_running() -> None:
    scripted = Scripted()
    reader = scripted.reader()
    states = [reader.status.state]
    errors: list[Exception] = [OSError("away"), OSError("still away")]

    async def action() -> str:
        if errors:
            raise errors.pop(0)
        states.append(reader.status.state)
        assert reader.status.error == "still away"
        return "done"

    assert await reader.persist(action, "act") == "done"
    assert states == [ReaderState.STARTING, ReaderState.RETRYING]
    assert (reader.status.state, reader.status.error) == (ReaderState.RUNNING, None)


async def test_a_reader_is_running_again_only_after_its_last_retry_has_succeeded() -> None:
    reader, back = Scripted().reader(), asyncio.Event()

    def failing_until(event: asyncio.Event) -> Any:
        failed = asyncio.Event()

        async def action() -> None:
            if not failed.is_set():
                failed.set()
                raise OSError("away")
            await event.wait()

        return action

    now = asyncio.Event()
    now.set()
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(reader.persist(failing_until(back), "act"))
        quick = tasks.create_task(reader.persist(failing_until(now), "act"))
        await quick
        assert not slow.done()
        assert reader.status.state is ReaderState.RETRYING
        back.set()
    assert reader.status.state is ReaderState.RUNNING


async def test_faults_are_counted_and_outages_are_not() -> None:
    reader = Scripted().reader()
    errors: list[Exception] = [
        OSError(),
        KeyError(),
        OSError(),
        KeyError(),
        OSError(),
        KeyError("last"),
    ]
    attempts = len(errors)

    async def action() -> None:
        nonlocal attempts
        attempts -= 1
        raise errors.pop(0)

    with pytest.raises(KeyError, match="last"):
        await reader.attempt(
            action, "act", final=reader.faults(lambda error: isinstance(error, OSError))
        )
    assert attempts == 0


async def test_keys_of_personal_fields_that_are_away_are_no_fault() -> None:
    reader = Scripted().reader()
    errors: list[Exception] = [*[SubjectKeysAway("away")] * 20, KeyError("a"), KeyError("b")]

    async def action() -> None:
        if errors:
            raise errors.pop(0)

    await reader.attempt(action, "act", final=reader.faults())
    assert errors == []


async def test_attempts_at_the_same_time_are_logged_ever_more_rarely() -> None:
    reader, left = Scripted().reader(), 9

    async def action() -> None:
        nonlocal left
        if left:
            left -= 1
            raise OSError("away")

    with capture_logs() as logs:
        await reader.attempt(action, "act", final=None)
    assert [(each["who"], each["attempt"]) for each in logs] == [("w", n) for n in (1, 2, 4, 8)]


async def test_a_reader_that_parks_waits_for_room() -> None:
    scripted, rooms = Scripted(), [False, False, True]
    reader = scripted.reader()

    async def store() -> bool:
        return rooms.pop(0)

    with capture_logs() as logs:
        await reader.park(MESSAGE, ValueError("poison"), store)
    assert (rooms, scripted.pauses) == ([], [1, 2])
    assert ["room" in each["event"] for each in logs] == [True, True, False]
    assert (logs[-1]["aggregate_id"], logs[-1]["error"]) == ("a", "poison")


async def test_a_cancelled_reader_closes_its_subscription() -> None:
    scripted = Scripted()
    await run_until(scripted.reader().run_by_batch(Collected(), idle_ms=1_000), scripted.polling)
    assert scripted.closed == 1


async def test_idle_is_called_until_a_message_comes() -> None:
    arrival = asyncio.Event()

    class Idling(Collected):
        calls = 0

        async def idle(self) -> bool:
            self.calls += 1
            if self.calls == 3:
                arrival.set()
            return False

    reaction = Idling()
    await run_until(Scripted(arrival).reader().run_by_batch(reaction, idle_ms=1), reaction.got)
    assert reaction.polls == [[MESSAGE]]
    assert reaction.calls >= 3


async def test_idle_may_stop_the_wait() -> None:
    class Idling(Collected):
        async def idle(self) -> bool:
            return True

    reaction = Idling()
    await run_until(Scripted().reader().run_by_batch(reaction, idle_ms=1), reaction.got)
    assert reaction.polls[0] == []


async def test_messages_that_come_while_idle_stops_the_wait_are_not_lost() -> None:
    arrival = asyncio.Event()
    scripted = Scripted(arrival)

    class Idling(Collected):
        async def idle(self) -> bool:
            arrival.set()
            await scripted.returned.wait()
            return True

    reaction = Idling()
    await run_until(scripted.reader().run_by_batch(reaction, idle_ms=1), reaction.got)
    assert reaction.polls[0] == [MESSAGE]


async def test_a_group_with_its_own_offsets_passes_them_to_the_transport() -> None:
    scripted = Scripted(Stop())

    async def offsets(queues: Any) -> dict[Any, int]:
        return {}

    with pytest.raises(Stop):
        await scripted.reader(offsets=offsets).run_by_batch(
            Collected(), idle_ms=1_000, unless=(Stop,)
        )
    assert scripted.subscribed == [("g", ["topic"], offsets)]


async def test_messages_by_key_come_in_order_and_end_runs_after_the_last_one() -> None:
    messages = [
        MESSAGE._replace(offset=offset, key=key) for offset, key in enumerate(["a", "b", "a", "c"])
    ]
    scripted = Scripted(messages)
    reader = scripted.reader()
    a, all_done = asyncio.Event(), asyncio.Event()
    log: list[Any] = []

    class Keyed(KeyReaction):
        async def select(self, messages: list[Incoming]) -> list[Incoming]:
            return [each for each in messages if each.key != "c"]

        async def react(self, message: Incoming) -> None:
            if message.offset == 0:
                await a.wait()
            log.append(message.offset)
            reader.ack(message)
            if message.key == "b":
                assert reader.is_under_way("a")
                assert not reader.is_under_way("c")
                a.set()
            if message.offset == 2:
                all_done.set()
                await asyncio.Event().wait()

        async def alongside(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                log.append("alongside")

        async def end(self) -> None:
            assert not reader.is_under_way("never")
            log.append(("end", scripted.closed))

    await run_until(reader.run_by_key(Keyed(), in_flight_max=10), all_done)
    assert log == [1, 0, 2, "alongside", ("end", 0)]
    assert [each.offset for each in scripted.acked] == [1, 0, 2]
    assert scripted.closed == 1


async def test_a_reader_counts_messages_and_failures() -> None:
    scripted = Scripted([MESSAGE, MESSAGE], ConnectionError("one"), None, Stop())
    reader, reaction = scripted.reader(), Collected()
    with pytest.raises(Stop):
        await reader.run_by_batch(reaction, idle_ms=1_000, unless=(Stop,))
    assert (reader.handled, reader.failures) == (3, 1)


async def test_failed_attempts_are_counted() -> None:
    reader = Scripted().reader()
    errors = [ValueError("one"), ValueError("two")]

    async def act() -> None:
        if errors:
            raise errors.pop()

    await reader.persist(act, "act")
    assert reader.failures == 2


async def test_a_reaction_is_measured_without_its_rest() -> None:
    class Resting(Collected):
        async def react(self, messages: list[Incoming]) -> None:
            await super().react(messages)
            await reader.rest(0)
            reader._rested_s = 5.0  # as if it had rested for so long

    scripted = Scripted([MESSAGE], Stop())
    reader, reaction = scripted.reader(), Resting()
    reader.measure(Histogram)
    with pytest.raises(Stop):
        await reader.run_by_batch(reaction, idle_ms=1_000, unless=(Stop,))
    found = reader.times.read()
    assert (found.total, found.seconds < 0) == (1, True)
    assert reader.ages.read().total == 0  # the message does not say when it was stored


async def test_the_age_of_a_batch_is_that_of_its_oldest_message() -> None:
    clock = FakeClock()
    now_ms = int(clock.now().timestamp() * 1_000)
    batch = [MESSAGE._replace(stored_at_ms=now_ms - age_ms) for age_ms in (250, 4_000, 1_000)]
    ahead = [MESSAGE._replace(stored_at_ms=now_ms + 60_000)]  # of a machine whose clock is ahead
    reader = Scripted(batch, ahead, Stop()).reader(clock=clock)
    reader.measure(Histogram)
    with pytest.raises(Stop):
        await reader.run_by_batch(Collected(), idle_ms=1_000, unless=(Stop,))
    found = reader.ages.read()
    assert (found.total, round(found.seconds, 3)) == (2, 4.0)


async def test_reactions_by_key_are_measured_one_by_one() -> None:
    class Keyed(KeyReaction):
        def __init__(self) -> None:
            self.done = asyncio.Event()

        async def react(self, message: Incoming) -> None:
            if reader.handled == 1:
                self.done.set()

    scripted = Scripted([MESSAGE, MESSAGE])
    reader, reaction = scripted.reader(), Keyed()
    reader.measure(Histogram)
    await run_until(reader.run_by_key(reaction, in_flight_max=1), reaction.done)
    assert reader.times.read().total == reader.handled == 2


async def test_calls_of_a_handler_are_measured_by_its_name() -> None:
    reader, calls = Scripted().reader(), []

    async def call() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no")

    await reader.measured("mail", call)()
    assert reader.handlers == {}
    reader.measure(Histogram)
    await reader.measured("mail", call)()
    with pytest.raises(ValueError, match="no"):
        await reader.measured("mail", call)()
    assert reader.handlers["mail"].read().total == 2
