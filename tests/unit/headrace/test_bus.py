"""The command bus, against a transport whose other side the test plays."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.bus import (
    REPLY_CORRELATION,
    REPLY_TO,
    CommandBus,
    CommandResult,
    encode_reply,
)
from headrace.domain.message import AggregateId, Command
from headrace.domain.registry import Registry
from headrace.domain.topics import command_topic
from headrace.errors import (
    CommandRefused,
    CommandTimeout,
    DefinitionError,
    NotYetHandled,
    ProjectionError,
)
from headrace.serialization import CommandEnvelope, JsonSerializer
from headrace.settings import Settings
from headrace.transports.base import Outgoing, Place, Report
from headrace.transports.local import LocalTransport


class Deposit(Command):
    account_id: AggregateId
    amount: int = 1


class OtherSide(LocalTransport):
    """A queue that waits and refuses on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Outgoing] = []
        self.refusals: list[BaseException] = []
        self.roomy = False
        self.telling: list[asyncio.Task[None]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def publish(self, message: Outgoing) -> Place:
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.append(message)
        await self.go_on.wait()
        return Place(0, len(self.taken) - 1)

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        if not self.roomy:
            return False
        telling = asyncio.get_running_loop().create_task(self._tell(message, told, len(self.taken)))
        if not self.refusals:
            self.taken.append(message)
        self.telling.append(telling)
        return True

    async def _tell(self, message: Outgoing, told: Report, place: int) -> None:
        if self.refusals:
            told(self.refusals.pop(0))
            return
        await self.go_on.wait()
        told(Place(0, place))

    async def answer(self, number: int, **result: object) -> None:
        """Replies to a command as a command service does."""
        message = self.taken[number]
        fields = {
            "status": "executed",
            "aggregate_id": message.key,
            "command_id": "c",
            "version": number,
        } | result
        await self.reply(
            message.headers[REPLY_TO],
            message.headers[REPLY_CORRELATION],
            encode_reply(CommandResult(**fields)),
        )


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture(params=[False, True], ids=["full", "roomy"])
def other_side(request) -> OtherSide:
    """What the bus talks to; it has no room for those who do not wait, or has some."""
    other_side = OtherSide()
    other_side.roomy = request.param
    return other_side


@pytest.fixture
def serializer() -> JsonSerializer:
    """Knows the command."""
    commands: Registry[Command] = Registry("command")
    commands.add(Deposit)
    return JsonSerializer(commands, Registry("event"))


@pytest.fixture
async def bus(other_side, serializer) -> AsyncIterator[CommandBus]:
    """With room for three commands."""
    bus = CommandBus(
        name="bank",
        transport=other_side,
        serializer=serializer,
        settings=Settings(bus_in_flight_max=3),
    )
    yield bus
    await bus.aclose()


async def test_a_sent_command_is_a_message_keyed_by_its_aggregate(bus, other_side, serializer):
    command_id = await bus.send(Deposit(account_id="a-1"), items={"trace": "t"})
    (message,) = other_side.taken
    assert (message.topic, message.key, message.tag) == (command_topic("bank"), "a-1", "Deposit")
    assert message.headers == {}
    envelope = serializer.decode_command(message.body)
    assert (envelope.command_id, envelope.correlation_id) == (command_id, command_id)
    assert (envelope.command, envelope.items) == (Deposit(account_id="a-1"), {"trace": "t"})


async def test_ids_given_by_the_caller_are_kept(bus, other_side, serializer):
    assert await bus.send(Deposit(account_id="a"), command_id="c", correlation_id="r") == "c"
    envelope = serializer.decode_command(other_side.taken[0].body)
    assert (envelope.command_id, envelope.correlation_id) == ("c", "r")
    ready = CommandEnvelope(command=Deposit(account_id="b"), command_id="d", correlation_id="r")
    await bus.send_envelope(ready)
    assert serializer.decode_command(other_side.taken[1].body) == ready


@pytest.mark.parametrize("command_id", ["", "x" * 256])
async def test_no_command_or_no_storable_id_is_the_callers_mistake(bus, other_side, command_id):
    for call in (bus.send, bus.execute):
        with pytest.raises(TypeError, match="an instance of a Command class, not 'pay'"):
            await call("pay")
    with pytest.raises(ValueError, match="1 to 255 characters"):
        await bus.send(Deposit(account_id="a"), command_id=command_id)
    with pytest.raises(ValueError, match="1 to 255 characters"):
        await bus.send(Deposit(account_id=""))
    assert other_side.taken == []


async def test_execute_returns_the_result_that_is_replied(bus, other_side):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a-1")))
    await turns()
    await other_side.answer(0, version=7, value={"balance": 5}, command_id="c-1")
    assert await call == CommandResult(
        status="executed",
        aggregate_id="a-1",
        command_id="c-1",
        version=7,
        value={"balance": 5},
    )


async def test_a_reply_that_comes_before_the_queue_confirms_is_not_lost(bus, other_side):
    other_side.go_on.clear()
    call = asyncio.create_task(bus.execute(Deposit(account_id="a-1")))
    await turns()
    await other_side.answer(0)
    await turns()
    other_side.go_on.set()
    assert (await call).ok


async def test_calls_that_were_only_started_keep_their_order(bus, other_side, serializer):
    calls = [
        asyncio.create_task(bus.execute(Deposit(account_id="a", amount=1))),
        asyncio.create_task(bus.send(Deposit(account_id="a", amount=2))),
        asyncio.create_task(bus.execute(Deposit(account_id="a", amount=3))),
        # These wait for room, and keep their order all the same.
        asyncio.create_task(bus.send(Deposit(account_id="a", amount=4))),
        asyncio.create_task(bus.send(Deposit(account_id="a", amount=5))),
    ]
    await turns()
    await other_side.answer(0)
    await other_side.answer(2)
    await asyncio.gather(*calls)
    amounts = [
        serializer.decode_command(message.body).command.amount for message in other_side.taken
    ]
    assert amounts == [1, 2, 3, 4, 5]


async def test_over_the_limit_commands_wait_their_turn(bus, other_side):
    calls = [
        asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id=str(number)))
        for number in range(5)
    ]
    await turns()
    assert len(other_side.taken) == 3
    await other_side.answer(1)
    await turns()
    assert len(other_side.taken) == 4
    await other_side.answer(0)
    await turns()
    for place in (2, 3, 4):
        await other_side.answer(place)
    assert [result.version for result in await asyncio.gather(*calls)] == [0, 1, 2, 3, 4]


async def test_two_calls_for_one_command_at_the_same_time_share_one_message_and_one_answer(
    bus, other_side
):
    other_side.go_on.clear()
    calls = [
        asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c")) for _ in range(2)
    ]
    await turns()
    assert len(other_side.taken) == 1
    other_side.go_on.set()
    await turns()
    assert len(other_side.taken) == 1
    await other_side.answer(0, version=3)
    first, second = await asyncio.gather(*calls)
    assert first == second
    # Later it is asked again.
    later = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    assert len(other_side.taken) == 2
    await other_side.answer(1, version=3)
    assert await later == first


async def test_the_same_command_id_on_another_aggregate_is_another_command(bus, other_side):
    calls = [
        asyncio.create_task(bus.execute(Deposit(account_id=account), command_id="c"))
        for account in ("a", "b")
    ]
    await turns()
    await other_side.answer(1)
    await other_side.answer(0)
    assert [result.aggregate_id for result in await asyncio.gather(*calls)] == ["a", "b"]


async def test_when_the_caller_who_sends_gives_up_the_one_who_shares_sends(bus, other_side):
    other_side.roomy = False
    other_side.go_on.clear()
    first = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    second = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    first.cancel()
    await turns()
    other_side.go_on.set()
    await turns()
    assert len(other_side.taken) == 2
    await other_side.answer(1, version=4)
    assert (await second).version == 4
    assert first.cancelled()


async def test_a_caller_after_a_refusal_that_all_have_heard_sends_again(bus, other_side):
    other_side.refusals = [OSError("no space left")]
    with pytest.raises(CommandRefused):
        await bus.execute(Deposit(account_id="a"), command_id="c")
    again = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    await other_side.answer(0)
    assert (await again).status == "executed"


async def test_a_caller_gets_an_answer_that_arrived_and_was_not_fetched_yet(bus, other_side):
    other_side.roomy = False
    other_side.go_on.clear()
    early = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    await other_side.answer(0, version=4)
    late = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    other_side.go_on.set()
    assert [result.version for result in await asyncio.gather(late, early)] == [4, 4]


async def test_a_caller_who_gives_up_takes_the_answer_from_nobody(bus, other_side):
    first = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    second = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    first.cancel()
    await turns()
    await other_side.answer(0, version=4)
    assert (await second).version == 4


async def test_no_result_in_time_is_a_timeout_that_says_the_outcome_is_unknown(bus, other_side):
    with pytest.raises(CommandTimeout, match=r"within 1 ms.*unknown.*same command_id is safe"):
        await bus.execute(Deposit(account_id="a"), timeout_ms=1)
    # A late reply is nobody's.
    await other_side.answer(0)
    assert bus._by_correlation == {}
    assert bus._awaited == {}


async def test_the_time_to_wait_comes_from_the_settings_by_default(other_side, serializer):
    bus = CommandBus(
        name="bank",
        transport=other_side,
        serializer=serializer,
        settings=Settings(result_timeout_ms=2),
    )
    with pytest.raises(CommandTimeout, match="within 2 ms"):
        await bus.execute(Deposit(account_id="a"))


async def test_what_the_queue_does_not_take_is_refused_with_the_cause(bus, other_side):
    other_side.refusals = [OSError("disk full"), OSError("disk full")]
    with pytest.raises(CommandRefused, match="disk full") as caught:
        await bus.send(Deposit(account_id="a"))
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(CommandRefused, match="disk full"):
        await bus.execute(Deposit(account_id="a"))


async def test_what_the_queue_does_not_confirm_in_time_has_an_unknown_outcome(bus, other_side):
    other_side.refusals = [TimeoutError("no ack")]
    with pytest.raises(CommandTimeout, match="did not confirm"):
        await bus.send(Deposit(account_id="a"))


async def test_an_unreadable_reply_is_logged_and_a_later_readable_one_taken(bus, other_side):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a")))
    await turns()
    headers = other_side.taken[0].headers
    for body in (b"nonsense", b'{"status": "odd", "aggregate_id": "a", "command_id": "c"}'):
        await other_side.reply(headers[REPLY_TO], headers[REPLY_CORRELATION], body)
    await other_side.answer(0)
    assert (await call).ok


async def test_a_closed_bus_lets_nobody_wait_and_takes_nothing(bus, other_side):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a")))
    await turns()
    await bus.aclose()
    with pytest.raises(CommandTimeout, match="closed"):
        await call
    with pytest.raises(CommandRefused, match="closed"):
        await bus.send(Deposit(account_id="a"))


async def test_a_result_that_a_crash_lost_is_asked_for_again_with_the_same_command(
    bus, other_side, serializer
):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    bus._resend_overdue()
    await turns()
    assert len(other_side.taken) == 1, "the first look only notes what is overdue"
    bus._resend_overdue()
    await turns()
    assert len(other_side.taken) == 2
    assert other_side.taken[1] == other_side.taken[0]
    await other_side.answer(1, command_id="c")
    assert (await call).command_id == "c"


async def test_nothing_is_sent_again_once_the_result_is_there(bus, other_side):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    await other_side.answer(0)
    bus._resend_overdue()
    bus._resend_overdue()
    await turns()
    assert (await call).ok
    assert len(other_side.taken) == 1


async def test_a_queue_that_refuses_what_is_sent_again_does_not_end_the_waiting(bus, other_side):
    call = asyncio.create_task(bus.execute(Deposit(account_id="a"), command_id="c"))
    await turns()
    other_side.refusals.append(OSError("gone"))
    bus._resend_overdue()
    bus._resend_overdue()
    await turns()
    assert not call.done()
    await other_side.answer(0)
    assert (await call).ok


class Readers:
    """Knows one projection; answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[CommandResult, tuple[str, ...], int]] = []
        self.failure: Exception | None = None
        self.done = asyncio.Event()

    def check(self, names) -> None:
        if not set(names) <= {"handled", "balances"}:
            raise DefinitionError("there is no such projection")

    async def wait(self, result, names, *, timeout_ms) -> None:
        self.asked.append((result, tuple(names), timeout_ms))
        if self.failure is not None:
            raise self.failure
        await self.done.wait()


class NamedPart:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
async def readers() -> Readers:
    """Who handles events."""
    return Readers()


@pytest.fixture
async def waiting_bus(other_side, serializer, readers) -> AsyncIterator[CommandBus]:
    """A bus that can wait for readers."""
    bus = CommandBus(
        name="bank",
        transport=other_side,
        serializer=serializer,
        settings=Settings(bus_in_flight_max=1),
        progress=readers,
    )
    yield bus
    await bus.aclose()


@pytest.mark.parametrize(
    ("wait_for", "names"),
    [("handled", ("handled",)), ([NamedPart("balances")], ("balances",))],
)
async def test_a_result_is_returned_only_when_those_waited_for_have_handled_it(
    waiting_bus, other_side, readers, wait_for, names
):
    call = asyncio.create_task(
        waiting_bus.execute(Deposit(account_id="a"), wait_for=wait_for, timeout_ms=30_000)
    )
    await turns()
    await other_side.answer(0, version=7, place=(1, 17))
    await turns()
    assert not call.done()
    ((result, asked, left_ms),) = readers.asked
    assert (result.version, result.place, asked) == (7, (1, 17), names)
    assert 0 < left_ms <= 30_000
    # Who waits for readers holds no room that a command could have.
    other = asyncio.create_task(waiting_bus.execute(Deposit(account_id="b")))
    await turns()
    await other_side.answer(1)
    assert (await other).ok
    readers.done.set()
    assert await call == result


@pytest.mark.parametrize(
    "failure",
    [TimeoutError("late"), ExceptionGroup("waits", [ProjectionError("balances is behind")])],
)
async def test_a_reader_that_is_late_does_not_hide_the_result(
    waiting_bus, other_side, readers, failure
):
    readers.failure = failure
    call = asyncio.create_task(waiting_bus.execute(Deposit(account_id="a"), wait_for="handled"))
    await turns()
    await other_side.answer(0, version=7)
    with pytest.raises(
        NotYetHandled, match=r"is executed, but handled .*: (late|balances)"
    ) as late:
        await call
    assert late.value.result.version == 7


async def test_waiting_for_what_there_is_not_is_refused_before_anything_is_sent(
    bus, waiting_bus, other_side
):
    with pytest.raises(DefinitionError, match="no such projection"):
        await waiting_bus.execute(Deposit(account_id="a"), wait_for=[NamedPart("nope")])
    with pytest.raises(DefinitionError, match="this bus can wait for results only"):
        await bus.execute(Deposit(account_id="a"), wait_for="handled")
    assert other_side.taken == []


async def test_waiting_for_no_projections_is_waiting_for_the_result(waiting_bus, other_side):
    call = asyncio.create_task(waiting_bus.execute(Deposit(account_id="a"), wait_for=[]))
    await turns()
    await other_side.answer(0)
    assert (await call).ok


async def test_a_caller_that_is_cancelled_gives_its_room_back(waiting_bus, other_side):
    call = asyncio.create_task(waiting_bus.execute(Deposit(account_id="a")))
    await turns()
    call.cancel()
    await asyncio.wait({call})
    other = asyncio.create_task(waiting_bus.execute(Deposit(account_id="b")))
    await turns()
    await other_side.answer(1)
    assert (await other).ok
