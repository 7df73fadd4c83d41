"""Who sent a command reaches its handler: from a token, through the gateway and a real broker."""

import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

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
    login: "Login"


class Login:
    """A login server: it publishes a key, and signs tokens with it."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        public = {**json.loads(OKPAlgorithm.to_jwk(self._key.public_key())), "kid": "k1"}
        body = json.dumps({"keys": [public]}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def token(self, **claims: Any) -> str:
        """Signs a token that is good, but for the claims that are given."""
        good = {"sub": "eve", "iss": "login", "aud": "desk", "exp": time.time() + 60}
        return jwt.encode({**good, "roles": ["boss"], **claims}, self._key, "EdDSA", {"kid": "k1"})


@pytest.fixture
def login() -> Iterator[Login]:
    login = Login()
    thread = Thread(target=login.server.serve_forever, daemon=True)
    thread.start()
    yield login
    login.server.shutdown()
    login.server.server_close()
    thread.join()


@pytest.fixture
async def desk(tmp_path: Path, login: Login) -> AsyncIterator[Desk]:
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
        gateway = GatewaySettings(
            port=0,
            tokens=file,
            jwks_url=login.url,
            jwt_issuer="login",
            jwt_audience=("desk",),
        )
        async with (
            app.run(settings) as running,
            serving(app, running, gateway) as served,
            httpx.AsyncClient(base_url=f"http://{served.address}", timeout=120) as client,
        ):
            yield Desk(client, tokens, seen, login)


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


async def test_a_handler_sees_the_sender_that_a_signed_token_names(desk: Desk) -> None:
    headers = {"Authorization": f"Bearer {desk.login.token()}", "Idempotency-Key": "k"}
    answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=headers)
    assert (answer.json()["value"], answer.json()["command_id"]) == ("eve", "eve:k")
    assert desk.seen == [Principal("eve", frozenset({"boss"}))]
    path = "/results?aggregate_id=d&command_id=eve:k&wait_ms=1"
    assert (await desk.client.get(path, headers=headers)).status_code == 200
    other = {"Authorization": f"Bearer {desk.tokens['ann']}"}
    assert (await desk.client.get(path, headers=other)).status_code == 404


async def test_signed_tokens_that_are_not_good_get_the_answer_of_an_unknown_one(desk: Desk) -> None:
    good = desk.login.token()
    stranger = Login()
    stranger.server.server_close()
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').rstrip(b"=").decode()
    answers = set()
    for bad in (
        desk.login.token(exp=time.time() - 60),
        desk.login.token(aud="shop"),
        desk.login.token(iss="evil"),
        stranger.token(),
        f"{none}.{good.split('.')[1]}.",
        good[:-4],
        "unknown",
    ):
        headers = {"Authorization": f"Bearer {bad}"}
        answer = await desk.client.post("/commands/Note", json={"desk": "d"}, headers=headers)
        answers.add((answer.status_code, answer.headers["www-authenticate"], answer.content))
    assert len(answers) == 1
    assert answers.pop()[0] == 401
    assert desk.seen == []


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
