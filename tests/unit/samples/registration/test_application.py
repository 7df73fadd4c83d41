"""No two users ever have the same address: at once, over HTTP, in every order of messages."""

import asyncio
from collections import deque
from datetime import UTC, datetime

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Aggregate, Command, DomainError
from headrace.commands.command_handlers import CommandContext, HandlerRun
from headrace.domain.stream import EventStream, Rejection
from headrace.gateway.gateway import Gateway
from headrace.serialization import CommandEnvelope
from samples.registration.addresses import ClaimEmail, EmailAddress, Register
from samples.registration.application import app, registration, users
from samples.registration.users import CloseUser, User


async def test_of_many_who_ask_for_an_address_at_once_one_has_it() -> None:
    async with app.run_local() as running:
        results = await asyncio.gather(
            *(
                running.bus.execute(
                    Register(
                        email=f"{'Ada' if number % 2 else 'ada'}@example.org",
                        user_id=f"u-{number}",
                        name=f"Ada {number}",
                    ),
                    wait_for="handled",
                )
                for number in range(40)
            )
        )
        winners = [number for number, result in enumerate(results) if result.ok]
        assert len(winners) == 1
        assert {result.error for result in results if not result.ok} == {"EmailTaken"}
        stored = await running.store.read_stream("ada@example.org")
        assert len(stored) == 1


async def test_over_http_one_gets_the_address_and_the_others_a_conflict() -> None:
    async with app.run_local() as running:
        transport = httpx.ASGITransport(Gateway(app, running))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answers = await asyncio.gather(
                *(
                    http.post(
                        "/commands/Register",
                        json={"email": "Ada@Example.org", "user_id": f"u-{n}", "name": "Ada"},
                    )
                    for n in range(10)
                )
            )
            assert sorted(answer.status_code for answer in answers) == [200, *[409] * 9]
            refused = next(answer for answer in answers if answer.status_code == 409)
            assert refused.json()["error"] == "EmailTaken"
            wrong = await http.post(
                "/commands/Register", json={"email": "ada", "user_id": "u", "name": "Ada"}
            )
            assert wrong.status_code == 422


async def test_a_closed_users_address_can_be_registered_again() -> None:
    async with app.run_local() as running:
        execute = running.bus.execute
        first = Register(email="ada@example.org", user_id="u-1", name="Ada")
        await execute(first, wait_for="handled")
        while not (await execute(CloseUser(user_id="u-1"))).ok:
            await asyncio.sleep(0)
        second = Register(email="ada@example.org", user_id="u-2", name="Eve")
        while not (await execute(second)).ok:
            await asyncio.sleep(0)
        while await running.read(users).get("u-2") is None:
            await asyncio.sleep(0)
        rows = {row.user_id: row async for row in running.read(users).rows()}
        assert (rows["u-1"].closed, rows["u-2"].closed) == (True, False)


class Interleaving:
    """Aggregates in memory, and the messages between them, delivered in any order.

    Commands of one aggregate keep their order, as in the queue; everything else is free.
    """

    def __init__(self) -> None:
        self.aggregates: dict[str, Aggregate] = {}
        self.waiting: dict[str, deque[Command]] = {}
        self.count = 0

    def send(self, command: Command) -> None:
        self.waiting.setdefault(command.aggregate_id, deque()).append(command)

    def deliver(self, choice: int) -> None:
        """Handles one of the commands that wait, and sends what it causes."""
        ready = sorted(name for name, queue in self.waiting.items() if queue)
        self._handle(self.waiting[ready[choice % len(ready)]].popleft())

    def drained(self) -> bool:
        return not any(self.waiting.values())

    def _handle(self, command: Command) -> None:
        self.count += 1
        command_id = f"c-{self.count}"
        envelope = CommandEnvelope(
            command=command, command_id=command_id, correlation_id=command_id
        )
        run = HandlerRun()
        handler = app.handlers.by_type.get(type(command))
        assert handler is not None
        rejection = None
        loaded = _Loaded(self, command)
        try:
            try:
                handler(command, CommandContext(envelope, loaded, run)).send(None)
            except StopIteration:
                run.finish(loaded.accepted)
        except DomainError as error:
            rejection = Rejection(
                error=type(error).__name__,
                sentence=str(error),
                command_name=command.message_name,
                command_version=command.message_version,
                command_data=command.model_dump(mode="json"),
            )
        aggregate = run.aggregate
        events = () if aggregate is None or rejection is not None else aggregate.recorded
        if aggregate is not None and events:
            self.aggregates[aggregate.id] = aggregate
            aggregate.accept()
        if events or rejection is not None:
            stream = EventStream(
                aggregate_type="",
                aggregate_id=command.aggregate_id,
                version=aggregate.version if events and aggregate else None,
                command_id=command_id,
                correlation_id=command_id,
                recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
                events=events,
                rejection=rejection,
            )
            for caused in registration.react(stream):
                self.send(caused.command)


class _Loaded:
    def __init__(self, world: Interleaving, command: Command) -> None:
        self.accepted = world.aggregates.get(command.aggregate_id)

    async def load(self, aggregate_type: type[Aggregate]) -> Aggregate | None:
        return None


EMAILS = st.sampled_from(["a@x", "b@x", "c@x"])
USERS = st.sampled_from(["u-1", "u-2", "u-3"])
WISHES = (
    st.builds(Register, email=EMAILS, user_id=USERS, name=st.just("n"))
    | st.builds(ClaimEmail, email=EMAILS, user_id=USERS)
    | st.builds(CloseUser, user_id=USERS)
)


@given(
    wishes=st.lists(WISHES, max_size=15),
    choices=st.lists(st.integers(0, 5), min_size=10, max_size=80),
)
@settings(max_examples=200, deadline=None)
def test_whatever_the_order_of_messages_each_address_ends_with_the_one_user_who_has_it(
    wishes: list[Command], choices: list[int]
) -> None:
    world = Interleaving()
    turns = iter(choices)
    for wish in wishes:
        world.send(wish)
        if not world.drained() and (choice := next(turns, 0)) % 2:
            world.deliver(choice)
    while not world.drained():
        world.deliver(next(turns, 0))
    held = {
        (one.holder, one.id)
        for one in world.aggregates.values()
        if isinstance(one, EmailAddress) and one.holder
    }
    used = {
        (one.id, one.email)
        for one in world.aggregates.values()
        if isinstance(one, User) and not one.closed
    }
    assert held == used
