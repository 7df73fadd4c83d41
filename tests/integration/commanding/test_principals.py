"""Who sent a command reaches its handler: from a token, through the gateway and a real broker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from headrace import AggregateId, App, Command, CommandContext, Principal, Settings
from headrace.access.tokens import new_token, token_line
from headrace.gateway.server import serving
from headrace.gateway.settings import GatewaySettings
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings


class Note(Command):
    desk: AggregateId


class Desk(NamedTuple):
    """A gateway over a broker, the tokens of its clients, and what its handler saw."""

    client: httpx.AsyncClient
    tokens: dict[str, str]
    seen: list[Principal | None]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    app = App("desk")
    seen: list[Principal | None] = []

    @app.handles
    async def note(command: Note, context: CommandContext) -> None:
        seen.append(context.principal)
        context.set_result(str(context.principal))

    tokens = {name: new_token() for name in ("ann", "bob")}
    file = tmp_path / "tokens"
    lines = [token_line(Principal(name, frozenset({"clerk"})), one) for name, one in tokens.items()]
    file.write_text("\n".join(lines))
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    async with Broker(BrokerSettings(port=0, store=store)) as broker:
        settings = Settings(
            broker=broker.address,
            event_store=f"sqlite:///{tmp_path}/events.db",
            read_models=f"sqlite:///{tmp_path}/read.db",
        )
        async with (
            app.run(settings) as running,
            serving(app, running, GatewaySettings(port=0, tokens=file)) as served,
            httpx.AsyncClient(base_url=f"http://{served.address}", timeout=30) as client,
        ):
            yield Desk(client, tokens, seen)


async def test_a_handler_sees_the_sender_of_a_command_over_http(desk: Desk) -> None:
    for name, token in desk.tokens.items():
        headers = {"Authorization": f"Bearer {token}"}
        answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=headers)
        assert (answer.status_code, answer.json()["value"]) == (200, name)
    roles = frozenset({"clerk"})
    assert desk.seen == [Principal("ann", roles), Principal("bob", roles)]


async def test_a_request_names_its_sender_by_a_token_alone(desk: Desk) -> None:
    headers = {"Authorization": f"Bearer {desk.tokens['ann']}"}
    claimed = Principal("root", frozenset({"admin"})).header
    answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=headers | claimed)
    assert answer.json()["value"] == "ann"
    answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=claimed)
    assert answer.status_code == 401
    assert len(desk.seen) == 1


async def test_an_unknown_token_and_a_wrong_one_get_the_same_answer(desk: Desk) -> None:
    answers = []
    for wrong in (new_token(), desk.tokens["ann"][:-1] + "?", desk.tokens["ann"].upper(), "x"):
        headers = {"Authorization": f"Bearer {wrong}"}
        answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=headers)
        answers.append((answer.status_code, answer.headers["www-authenticate"], answer.content))
    assert answers[0][0] == 401
    assert len(set(answers)) == 1


async def test_a_program_that_is_trusted_names_the_sender_itself() -> None:
    app = App("desk")
    seen: list[Principal | None] = []

    @app.handles
    async def note(command: Note, context: CommandContext) -> None:
        seen.append(context.principal)

    ann = Principal("ann", frozenset({"clerk"}))
    async with app.run_local() as desk:
        await desk.bus.execute(Note(desk="d"), principal=ann)
        await desk.bus.send(Note(desk="d"), principal=ann)
        await desk.bus.execute(Note(desk="d"))
    assert seen == [ann, ann, None]
