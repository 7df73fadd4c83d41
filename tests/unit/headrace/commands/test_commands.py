"""The command side as a whole: crashes, duplicates and foreign writes at any moment."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.commands.command_handlers import CommandContext
from headrace.domain.message import AggregateId, Command

GATES = {
    "before the append": lambda world: world.store.before_append,
    "after the append": lambda world: world.store.after_append,
    "before the publication": lambda world: world.transport.before_publish["events"],
    "after the publication": lambda world: world.transport.after_publish["events"],
    "before the reply": lambda world: world.transport.before_reply,
    "before a message": lambda world: world.transport.before_publish["messages"],
    "after a message": lambda world: world.transport.after_publish["messages"],
    "before a snapshot is saved": lambda world: world.store.before_save,
}


@pytest.mark.parametrize("where", GATES)
@pytest.mark.parametrize("cold", [True, False], ids=["nothing stored before", "accounts exist"])
async def test_after_a_crash_the_next_processor_finishes_everything_once(world, bank, where, cold):
    world.settings = world.settings.model_copy(update={"snapshot_events": 2})
    world.start()
    if not cold:
        for number in range(3):
            await world.bus.execute(bank.Open(account_id=f"a-{number}"), command_id="open")
    gate = GATES[where](world)
    gate.shut()
    calls = []
    for number in range(3):
        account_id = f"a-{number}"
        for command_id, command in (
            ("open", bank.Open(account_id=account_id)),
            ("d-1", bank.Deposit(account_id=account_id, amount=5)),
            ("d-2", bank.Deposit(account_id=account_id, amount=6)),
            ("w-1", bank.Withdraw(account_id=account_id, amount=100)),
            ("look", bank.Look(account_id=account_id)),
            ("w-2", bank.Withdraw(account_id=account_id, amount=2)),
            ("tell", bank.Tell(account_id=account_id, text="hello", amount=1)),
            ("say", bank.Tell(account_id=account_id, text="alone")),
        ):
            calls.append(asyncio.create_task(world.bus.execute(command, command_id=command_id)))
    await gate.reached.wait()
    await world.settle()
    await world.crash()
    gate.open()
    world.start()
    results = await asyncio.gather(*calls)
    expected = ["executed"] * 3 + ["rejected", "unchanged"] + ["executed"] * 3
    assert [result.status for result in results] == expected * 3
    # The look leaves nothing behind to be remembered: it may see what came after it.
    deposits, withdrawal = results[1:3], results[5]
    assert [result.value["balance"] for result in (*deposits, withdrawal)] == [5, 11, 9]
    for number in range(3):
        account = await world.account(f"a-{number}")
        assert (account.balance, account.version) == (10, 5)
        assert told(world, f"a-{number}") == ["hello", "alone"]
        await world.check(f"a-{number}")
    await world.stop()
    assert await world.unfinished() == []


class Break(Command):
    account_id: AggregateId


LATER_GATES = {
    "before a load": lambda world: world.store.before_read,
    "before an outcome is looked up": lambda world: world.store.before_find,
    "before a dead letter": lambda world: world.letters.before["park"],
    "after a dead letter": lambda world: world.letters.after["park"],
}


@pytest.mark.parametrize("where", LATER_GATES)
async def test_after_a_crash_on_the_rarer_ways_everything_is_finished_once(world, bank, where):
    async def break_down(command: Break, context: CommandContext) -> None:
        await context.get(bank.Account, command.account_id)
        raise ValueError("broken")

    world.settings = world.settings.model_copy(update={"error_retries_max": 1})
    world.handle(break_down)
    world.start()
    for number in range(2):
        await world.bus.execute(bank.Open(account_id=f"a-{number}"))
        await world.bus.execute(bank.Deposit(account_id=f"a-{number}", amount=1), command_id="d-0")
    await world.stop()
    world.start()  # With nothing in memory.
    gate = LATER_GATES[where](world)
    gate.shut()
    calls = [
        asyncio.create_task(world.bus.execute(command, command_id=command_id))
        for number in range(2)
        for command_id, command in (
            ("d-1", bank.Deposit(account_id=f"a-{number}", amount=5)),
            ("b-1", Break(account_id=f"a-{number}")),
            ("d-0", bank.Deposit(account_id=f"a-{number}", amount=1)),
            ("look", bank.Look(account_id=f"a-{number}")),
            ("d-2", bank.Deposit(account_id=f"a-{number}", amount=6)),
        )
    ]
    await gate.reached.wait()
    await world.settle()
    await world.crash()
    gate.open()
    world.start()
    results = await asyncio.gather(*calls)
    expected = ["executed", "failed", "executed", "unchanged", "executed"]
    assert [result.status for result in results] == expected * 2
    assert [results[place].value for place in (0, 2, 4)] == [
        {"balance": 6},
        {"balance": 1},
        {"balance": 12},
    ]
    letters = {(letter.key, letter.error) for letter in world.letters.all}
    assert letters == {("a-0", "ValueError"), ("a-1", "ValueError")}
    for number in range(2):
        account = await world.account(f"a-{number}")
        assert (account.balance, account.version) == (12, 4)
        await world.check(f"a-{number}")
    await world.stop()
    assert await world.unfinished() == []


class Points:
    """The places before and after each call that the command side awaits of its surroundings.

    Args:
        world: whose store, transport and letters are watched.
        crash_at: which of the places is never left, counted from 0; None: all are.
        error: with which every kind of call fails at first, if there is one.
    """

    def __init__(self, world, *, crash_at: int | None = None, error: Exception | None = None):
        self.passed: list[str] = []
        self.reached = asyncio.Event()
        self._crash_at = crash_at
        self._error = error
        # An error that nobody knows is taken for the fault of what was stored after so many.
        self.failures_max = 0 if error is None else 10
        self._failed: Counter[str] = Counter()
        store, transport = world.store, world.transport
        for method in ("append", "find_stored", "read_stream", "find_snapshot", "save_snapshots"):
            setattr(store, method, self._watched(method, getattr(store, method)))
        for method in ("publish", "reply"):
            setattr(transport, method, self._watched(method, getattr(transport, method)))
        for method in ("count", "park", "lines"):
            setattr(world.letters, method, self._watched(method, getattr(world.letters, method)))

    def _watched(self, name, work):
        async def watched(*arguments, **named):
            topic = getattr(arguments[0], "topic", "") if arguments else ""
            if topic == "bank.commands":  # the caller's own
                return await work(*arguments, **named)
            place = f"{name} {topic}".strip()
            await self._pass(f"before {place}")
            if self._error is not None and self._failed[place] < self.failures_max:
                self._failed[place] += 1
                # A reply is given once, and a snapshot may be lost.
                if name not in {"reply", "save_snapshots"}:
                    raise self._error
            done = await work(*arguments, **named)
            await self._pass(f"after {place}")
            return done

        return watched

    async def _pass(self, place: str) -> None:
        self.passed.append(place)
        if len(self.passed) - 1 == self._crash_at:
            self.reached.set()
            await asyncio.Event().wait()


async def live(world, bank, points: Points) -> list[str]:
    """Sends commands of every fate, crashes where the points say so, and checks what is left."""

    async def break_down(command: Break, context: CommandContext) -> None:
        await context.get(bank.Account, command.account_id)
        raise ValueError("broken")

    world.settings = world.settings.model_copy(
        update={"error_retries_max": points.failures_max, "after_parked": "hold"}
    )
    world.settings = world.settings.model_copy(update={"snapshot_events": 2})
    world.handle(break_down)
    await world.begin()
    await world.store_behind(
        world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="open"),
        world.stream("a-1", 2, bank.Deposited(amount=1, balance=1), command_id="d-0"),
    )
    world.start()
    calls = [
        asyncio.create_task(world.bus.execute(command, command_id=command_id))
        for account_id in ("a-0", "a-1")
        for command_id, command in (
            ("open", bank.Open(account_id=account_id)),
            ("d-1", bank.Deposit(account_id=account_id, amount=5)),
            ("w-1", bank.Withdraw(account_id=account_id, amount=100)),
            ("look", bank.Look(account_id=account_id)),
            ("tell", bank.Tell(account_id=account_id, text="hello", amount=1)),
            ("b-1", Break(account_id=account_id)),
            ("d-2", bank.Deposit(account_id=account_id, amount=2)),
        )
    ]
    finished = asyncio.ensure_future(asyncio.gather(*calls))
    crash = asyncio.create_task(points.reached.wait())
    await asyncio.wait({finished, crash}, return_when=asyncio.FIRST_COMPLETED)
    if crash.done():
        await world.crash()
        world.start()
    else:
        crash.cancel()
    results = await finished
    await world.settle()
    await world.stop()
    await world.bus.aclose()
    await check_fates(world, points, results)
    return points.passed


async def check_fates(world, points: Points, results) -> None:
    assert await world.unfinished() == []
    fates = ["executed", "executed", "rejected", "unchanged", "executed", "failed", "failed"]
    assert [result.status for result in results] == fates * 2
    letters = [(each.aggregate_id, each.command_id, each.state.value) for each in world.letters.all]
    for account_id, balance in (("a-0", 6), ("a-1", 7)):
        assert [each[1:] for each in letters if each[0] == account_id] == [
            ("b-1", "holding"),
            ("d-2", "held"),
        ]
        assert (await world.account(account_id)).balance == balance
        assert told(world, account_id) == ["hello"]
        world.check_sums(await world.stored(account_id))


async def test_a_crash_before_or_after_anything_that_is_awaited_changes_no_outcome(new_world, bank):
    world = new_world()
    places = await live(world, bank, Points(world))
    reached = set()
    for number in range(len(places)):
        world = new_world()
        points = Points(world, crash_at=number)
        await live(world, bank, points)
        if points.reached.is_set():
            reached.add(points.passed[number])
    assert reached == set(places)
    assert {place.partition(" ")[2] for place in places} >= {
        *("append", "find_stored", "read_stream", "find_snapshot", "save_snapshots", "reply"),
        *("publish bank.events", "publish bank.messages", "count", "park", "lines"),
    }


@pytest.mark.parametrize("error", [OSError("i/o"), RuntimeError("unknown")])
async def test_when_every_port_fails_ten_times_and_then_works_no_outcome_changes(
    new_world, bank, error
):
    world = new_world()
    places = await live(world, bank, Points(world, error=error))
    assert places.count("before append") > 10


def told(world, account_id: str) -> list[str]:
    """What a reader of the message topic has heard, each message once."""
    decoded = [
        world.serializer.decode_message(message.body)
        for message in world.transport.published["messages"]
        if message.key == account_id
    ]
    return list({context.message_id: message.text for message, context in decoded}.values())


async def test_a_message_without_events_is_stored_published_and_answered_once(world, bank):
    world.start()
    command = bank.Tell(account_id="a-1", text="hello")
    first = await world.bus.execute(command, command_id="c-1")
    assert (first.status, first.version, first.value) == ("executed", None, {"told": "hello"})
    assert await world.bus.execute(command, command_id="c-1") == first
    await world.stop()
    world.start()
    assert await world.bus.execute(command, command_id="c-1") == first
    (stream,) = await world.stored("a-1")
    assert (stream.events, stream.messages) == ((), (bank.Told(text="hello"),))
    assert len(world.transport.published["messages"]) == 3
    assert told(world, "a-1") == ["hello"]
    # Readers of events hear nothing of it, and versions have no hole.
    assert world.published("a-1") == []
    assert (await world.bus.execute(bank.Open(account_id="a-1"))).version == 1


async def test_events_and_messages_of_one_command_are_stored_together(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    result = await world.bus.execute(bank.Tell(account_id="a-1", text="hello", amount=5))
    assert (result.version, result.value) == (2, {"told": "hello"})
    stream = (await world.stored("a-1"))[-1]
    assert (len(stream.events), stream.messages) == (1, (bank.Told(text="hello"),))
    await world.check("a-1")


async def test_a_rejected_command_publishes_no_message(world, bank):
    world.start()
    result = await world.bus.execute(bank.Tell(account_id="nobody", text="hello", amount=5))
    assert result.status == "rejected"
    assert world.transport.published["messages"] == []


@pytest.mark.parametrize("error", [OSError("i/o"), RuntimeError("unknown")])
async def test_a_topic_that_fails_to_take_messages_ten_times_loses_nothing(world, bank, error):
    world.transport.failures["messages"] = [error] * 10
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    results = await asyncio.gather(
        *(
            world.bus.execute(bank.Tell(account_id="a-1", text=f"{number}", amount=number % 2))
            for number in range(10)
        )
    )
    assert {result.status for result in results} == {"executed"}
    assert told(world, "a-1") == [str(number) for number in range(10)]
    await world.check_readable("a-1")


commands = st.tuples(
    st.sampled_from(["open", "deposit", "withdraw", "look", "close", "deposit twice"]),
    st.sampled_from(["a-1", "a-2"]),
    st.integers(min_value=1, max_value=9),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), commands),
        st.tuples(st.just("send again"), st.integers(min_value=0, max_value=30)),
        st.tuples(st.just("foreign write"), st.sampled_from(["a-1", "a-2"])),
        st.tuples(st.just("turns"), st.integers(min_value=1, max_value=12)),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=40,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps, snapshot_events=st.sampled_from([0, 1, 2, 3]))
def test_whatever_happens_every_command_has_one_outcome_and_versions_have_no_gap(
    new_world, bank, steps, snapshot_events
):
    world = new_world()
    world.settings = world.settings.model_copy(update={"snapshot_events": snapshot_events})
    asyncio.run(play(world, bank, steps))


async def play(world, bank: SimpleNamespace, steps: list[tuple[str, object]]) -> None:
    make = {
        "open": lambda account_id, _: bank.Open(account_id=account_id),
        "deposit": lambda account_id, n: bank.Deposit(account_id=account_id, amount=n),
        "withdraw": lambda account_id, n: bank.Withdraw(account_id=account_id, amount=n),
        "look": lambda account_id, _: bank.Look(account_id=account_id),
        "close": lambda account_id, _: bank.Close(account_id=account_id),
        "deposit twice": lambda account_id, n: bank.DepositTwice(account_id=account_id, amount=n),
    }
    await world.begin()
    world.start()
    sent: list[tuple[str, object]] = []
    calls: list[tuple[str, asyncio.Task]] = []
    for step, value in steps:
        if step == "send":
            kind, account_id, number = value
            sent.append((f"c-{len(sent)}", make[kind](account_id, number)))
            command_id, command = sent[-1]
        elif step == "send again" and sent:
            command_id, command = sent[value % len(sent)]
        elif step == "foreign write":
            await write_behind(world, bank, value)
            continue
        elif step == "turns":
            await world.settle(value)
            continue
        elif step == "crash":
            await world.crash()
            world.start()
            continue
        else:
            continue
        call = asyncio.create_task(world.bus.execute(command, command_id=command_id))
        calls.append((command_id, call))
        await world.settle(1)
    results = await asyncio.gather(*(call for _, call in calls))
    stored = {
        stream.command_id: stream
        for account_id in ("a-1", "a-2")
        for stream in await world.stored(account_id)
    }
    for (command_id, _), result in zip(calls, results, strict=True):
        stream = stored[command_id]
        if stream.unchanged:
            assert (result.status, result.version) == ("unchanged", stream.seen_version)
        else:
            assert result.status == ("executed" if stream.rejection is None else "rejected")
            assert result.version == stream.version
        assert result.value == (None if stream.result is None else json.loads(stream.result))
    await world.stop()
    assert await world.unfinished() == []
    for account_id in ("a-1", "a-2"):
        await check_with_foreign(world, account_id)
        in_order = [(name, each) for name, each in sent if each.account_id == account_id]
        check_against_model(bank, await world.stored(account_id), in_order)
    await world.bus.aclose()


async def write_behind(world, bank: SimpleNamespace, account_id: str) -> None:
    account = await world.account(account_id)
    event = (
        bank.Deposited(amount=1, balance=account.balance + 1)
        if account.version
        else bank.Opened(owner="foreign")
    )
    version = account.version + 1
    await world.store_behind(
        world.stream(account_id, version, event, command_id=f"foreign-{version}")
    )


async def check_with_foreign(world, account_id: str) -> None:
    """`World.check`, where other processes publish their own streams."""
    everything = await world.stored(account_id)
    world.check_sums(everything)
    stored = [each for each in everything if not each.command_id.startswith("foreign")]
    command_ids = [stream.command_id for stream in stored]
    assert len(command_ids) == len(set(command_ids))
    published = [stream.command_id for stream in world.published(account_id)]
    assert list(dict.fromkeys(published)) == [
        each.command_id for each in stored if not each.unchanged
    ]


def decide(bank: SimpleNamespace, account, command) -> object:
    """The bank in one function: events, the code of a rejection, or None for nothing at all."""
    match command:
        case bank.Open():
            return "AggregateExists" if account.version else [bank.Opened(owner=command.owner)]
        case _ if not account.version:
            return "AggregateNotFound"
        case bank.Deposit():
            balance = account.balance + command.amount
            return [bank.Deposited(amount=command.amount, balance=balance)]
        case bank.Withdraw() if command.amount <= account.balance:
            balance = account.balance - command.amount
            return [bank.Withdrawn(amount=command.amount, balance=balance)]
        case bank.Withdraw() | bank.DepositTwice():
            return "overdrawn"
        case bank.Close():
            return None if account.closed else [bank.Closed()]
    return None


def check_against_model(bank: SimpleNamespace, stored, sent) -> None:
    """The streams of one account are what its commands decide one after another.

    A rejection has no version, so another process may write between its decision and its storing:
    then it is right for a state that the account has had.
    """
    commands = dict(sent)
    account = bank.Account("model")
    foreign = any(each.command_id.startswith("foreign") for each in stored)
    had = [bank.Account("model")]
    for stream in stored:
        if stream.command_id in commands:
            command = commands[stream.command_id]
            if stream.events:
                assert decide(bank, account, command) == list(stream.events)
            else:
                states = had if foreign else [account]
                decided = stream.rejection.error if stream.rejection else None
                assert decided in [decide(bank, each, command) for each in states]
        if stream.version is not None:
            account.replay(stream.version, stream.events)
            copy = bank.Account("model")
            for before in stored[: stored.index(stream) + 1]:
                if before.version is not None:
                    copy.replay(before.version, before.events)
            had.append(copy)
    # Every command leaves a stream, in the order of sending.
    assert [each.command_id for each in stored if each.command_id in commands] == list(commands)
