"""Hostile bytes and requests at a broker with a login, before the login and after it; and those who guess passwords."""

import base64
import random
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import SecretStr
from scramp import ScramClient
from structlog.testing import capture_logs

from benchmarks.mq.fuzz import damaged, sound_streams
from headrace_mq import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.broker.users.logins import FAILURES_MAX
from headrace_mq.errors import LoginFailed, ResponseCode
from headrace_mq.protocol.access import (
    ED25519,
    SCRAM,
    Login,
    LoginAnswer,
    key_greeting,
    signed_by_key,
)
from headrace_mq.protocol.bodies import ErrorAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, encode_frame
from tests.integration.mq.secured_broker import PASSWORD, Door, RawClient, guarded
from tests.integration.mq.test_permissions import TABLE

STREAMS = 300
GUESSES = 1_000
# Of one core, while a thousand come in a minute.
CORE_SHARE_MAX = 0.05
MESSAGES = (
    "n,,n=root,r=1f7c", "n,,n=,r=", "y,,n=root,r=x", "p=tls-unique,,n=root,r=x", "n,a=admin,n=root,r=x",
    "n,,n=root", "", ",", "=", "n,,n=root,r=x,m=1", "n,,n=ro\x00ot,r=x", "n,,n=\u202eroot,r=x",
    "c=biws,r=x,p=AAAA", f"c=biws,r=x,p={base64.b64encode(bytes(32)).decode()}", "n,,n=" + "x" * 70_000 + ",r=1",
    "n,,n==2C=3D,r=x", "n,,n=%s%n%x,r={0}", "n,,r=x,n=root",
)  # fmt: skip

NONCE = "n" * 43
GREETINGS = (
    "", "n=bank", f"n=bank,r={NONCE}", f"r={NONCE},n=", f"r={NONCE}", "r=,n=bank", f"r={'n' * 31},n=bank",
    f"r={'n' * 65},n=bank", f"r={NONCE}\x00,n=bank", f" r={NONCE},n=bank", f"r={NONCE},n=" + "x" * 3_000,
    "n,,n=bank,r=x",
)  # fmt: skip
# Those that are well formed, of users that there are not.
STRANGERS = (
    "eve",
    "bank\x00",
    "\u202ebank",
    "BANK",
    "bank ",
    "bank,n=root",
    "%s%n{0}",
    "x" * 1_900,
)
SERVICE = Ed25519PrivateKey.generate()


def text_of(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


# What comes in place of the right signature; each is given what is to be signed.
FORGERIES: tuple[Callable[[bytes], str], ...] = (
    lambda _: "",
    lambda _: "=",
    lambda _: "AAAA",
    lambda _: "\x00" * 88,
    lambda _: "\u202e" * 88,
    lambda _: text_of(bytes(64)),
    lambda _: text_of(b"\xff" * 64),
    lambda signed: text_of(SERVICE.sign(signed)[:-1]),
    lambda signed: text_of(SERVICE.sign(signed) + b"\x00"),
    lambda signed: text_of(SERVICE.sign(signed)[::-1]),
    lambda signed: text_of(SERVICE.sign(signed)) + "\n",
    lambda signed: text_of(SERVICE.sign(signed))[:-2] + "%=",
    lambda signed: SERVICE.sign(signed).hex(),
    lambda signed: text_of(SERVICE.sign(signed.replace(b"bank", b"root"))),
    lambda signed: text_of(SERVICE.sign(signed[:-1])),
    lambda signed: text_of(Ed25519PrivateKey.generate().sign(signed)),
    lambda _: text_of(SERVICE.sign(signed_by_key("bank", NONCE, NONCE))),
    lambda signed: text_of(SERVICE.sign(signed)) * 30,
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with guarded(connections_per_address_max=1_024) as running:
        yield running


@pytest.fixture
def door(tmp_path: Path, broker: Broker) -> Door:
    return Door(tmp_path, broker)


def requests() -> list[bytes]:
    """A frame of every request."""
    bodies = ((row.code, row.body) for row in TABLE)
    return [
        encode_frame(code, number, body if isinstance(body, bytes) else encode(body))
        for number, (code, body) in enumerate(bodies)
    ]


async def unharmed(door: Door, before: tuple[Any, ...]) -> None:
    """Checks that another client is served, and that users, rules and topics are those of before."""
    async with AdminClient(door.of("root")) as admin:
        assert await known(admin) == before


async def known(admin: AdminClient) -> tuple[Any, ...]:
    return await admin.users(), await admin.rules(), await admin.topics()


async def test_hostile_bytes_before_the_login_change_nothing_and_harm_no_other_client(
    broker: Broker, door: Door
) -> None:
    chance, streams = random.Random(11), [*sound_streams(), *requests()]
    async with AdminClient(door.of("root")) as admin:
        before = await known(admin)
    with capture_logs() as logs:
        for number in range(STREAMS):
            client = await RawClient.dial(broker.address)
            stream = b"".join(chance.choices(streams, k=3))
            client.writer.write(damaged(stream, chance) if number % 3 else stream)
            await client.drained()
            client.hang_up()
    assert [one for one in logs if one["event"] == "request failed"] == []
    assert broker._state is not None
    assert {one.user for one in broker._state.peers} <= {"root"}
    await unharmed(door, before)


async def test_hostile_messages_of_a_login_let_no_one_in(broker: Broker, door: Door) -> None:
    chance = random.Random(12)
    async with AdminClient(door.of("root")) as admin:
        before = await known(admin)
    told = [Login(SCRAM, text) for text in MESSAGES]
    told += [Login(ED25519, text) for text in (*GREETINGS, key_greeting("root", NONCE), "AAAA")]
    told += [Login(name, "n,,n=root,r=x") for name in ("", "PLAIN", "SCRAM-SHA-1", "x" * 9_000)]
    with capture_logs() as logs:
        for number in range(STREAMS):
            client = await RawClient.dial(broker.address)
            for login in chance.choices(told, k=4):
                body = encode(login)
                if number % 2:
                    body = damaged(body, chance)
                client.writer.write(encode_frame(RequestCode.LOGIN, 1, body))
            client.writer.write(encode_frame(RequestCode.LIST_USERS, 2))
            await client.drained()
            client.hang_up()
    assert [one for one in logs if one["event"] == "request failed"] == []
    assert not [one for one in logs if one.get("action") == "login" and one["outcome"] == "done"]
    assert broker._state is not None
    assert broker._state.logins is not None
    assert not broker._state.logins._exchanges
    # Its own guesses locked the name for this address, and for no other.
    broker._state.logins._failures.clear()
    await unharmed(door, before)


async def test_hostile_messages_of_a_login_with_a_key_let_no_user_in(
    broker: Broker, door: Door
) -> None:
    async with AdminClient(door.of("root")) as admin:
        for name in ("bank", "old"):
            await admin.add_user(name, None, key=SERVICE.public_key().public_bytes_raw())
        await admin.change_user("old", disabled=True)
        before = await known(admin)
    # Each from its own address, so that none is refused for those before it.
    places = (f"127.0.3.{number}" for number in count(1))

    async def greet(message: str) -> tuple[RawClient, Frame]:
        client = await RawClient.dial(broker.address, host=next(places))
        return client, await client.ask(RequestCode.LOGIN, encode(Login(ED25519, message)))

    async def end(name: str, mechanism: str, forge: Callable[[bytes], str]) -> int:
        client, answer = await greet(key_greeting(name, NONCE))
        assert answer.code == ResponseCode.OK, name
        signed = signed_by_key(name, NONCE, decode(LoginAnswer, answer.body).message)
        last = encode(Login(mechanism, forge(signed)))
        code = (await client.ask(RequestCode.LOGIN, last)).code
        client.hang_up()
        return code

    def right(signed: bytes) -> str:
        return text_of(SERVICE.sign(signed))

    with capture_logs() as logs:
        codes = []
        for message in GREETINGS:
            client, answer = await greet(message)
            codes.append(answer.code)
            client.hang_up()
        codes += [await end("bank", ED25519, forge) for forge in FORGERIES]
        codes += [await end(name, ED25519, right) for name in ("root", "old", *STRANGERS)]
        codes.append(await end("bank", SCRAM, right))
        codes.append(await end("bank", SCRAM, lambda _: f"n,,n=bank,r={NONCE}"))
    assert set(codes) == {LoginFailed.code}
    assert [one for one in logs if one["event"] == "request failed"] == []
    assert [one for one in logs if one.get("action") == "login" and one["outcome"] == "done"] == []
    assert broker._state is not None
    assert broker._state.logins is not None
    assert broker._state.logins.refused == len(codes)
    assert not broker._state.logins._exchanges
    # The same steps with the right signature let the user in.
    assert await end("bank", ED25519, right) == ResponseCode.OK
    await unharmed(door, before)


async def test_hostile_requests_after_the_login_do_no_more_than_rules_allow(
    broker: Broker, door: Door
) -> None:
    chance, streams = random.Random(13), requests()
    await door.add("eve", "read topic:*", "consume topic:*", "consume group:*")
    async with AdminClient(door.of("root")) as admin:
        for topic in ("t", "tea", "%RETRY%g"):
            await admin.create_topic(topic, 2)
        before = await known(admin)
    with capture_logs() as logs:
        for number in range(STREAMS // 3):
            client = await RawClient.dial(broker.address)
            assert await client.log_in(ScramClient([SCRAM], "eve", PASSWORD)) == ResponseCode.OK
            stream = b"".join(chance.choices(streams, k=20))
            client.writer.write(damaged(stream, chance) if number % 2 else stream)
            await client.drained()
            client.hang_up()
    assert [one for one in logs if one["event"] == "request failed"] == []
    done = [one for one in logs if one.get("event") == "audit" and one.get("user") == "eve"]
    assert {one["action"] for one in done if one["outcome"] == "done"} <= {"login"}
    await unharmed(door, before)


async def test_a_thousand_wrong_logins_cost_little_and_lock_out_no_other_user_and_address(
    tmp_path: Path, start_broker: Any, record_property: Any
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("root", "ann"):
        add_user(data, name, SecretStr(PASSWORD), admin=name == "root")
    broker = await start_broker(data, login=True)
    before_s = broker.processor_s
    codes, proofs = set(), 0
    for number in range(GUESSES):
        # Those of one address are locked after a few; so they come from many, and each is checked.
        place = max(0, number - FAILURES_MAX + 1)
        client = await RawClient.dial(
            broker.address, host=f"127.0.{1 + place // 250}.{1 + place % 250}"
        )
        # Wrong from the start: a client that computes proofs would cost this machine more than the broker.
        first = await client.ask(RequestCode.LOGIN, encode(Login(SCRAM, f"n,,n=root,r=x{number}")))
        if first.code == ResponseCode.OK:
            proofs += 1
            nonce = bytes(first.body).decode(errors="ignore").partition("r=")[2].partition(",")[0]
            guess = Login(SCRAM, f"c=biws,r={nonce},p={base64.b64encode(bytes(32)).decode()}")
            codes.add((await client.ask(RequestCode.LOGIN, encode(guess))).code)
        else:
            codes.add(first.code)
        client.hang_up()
        if number == FAILURES_MAX:
            other = await RawClient.dial(broker.address)
            assert await other.log_in(ScramClient([SCRAM], "ann", PASSWORD)) == ResponseCode.OK
            other.hang_up()
            again = Login(SCRAM, "n,,n=root,r=x")
            locked = await RawClient.dial(broker.address, host="127.0.1.1")
            answer = await locked.ask(RequestCode.LOGIN, encode(again))
            assert "too many logins" in decode(ErrorAnswer, answer.body).sentence
            locked.hang_up()
            far = await RawClient.dial(broker.address, host="127.0.0.2")
            assert await far.log_in(ScramClient([SCRAM], "root", PASSWORD)) == ResponseCode.OK
            far.hang_up()
    cost_s = broker.processor_s - before_s
    record_property("broker_processor_s", cost_s)
    assert (codes, proofs) == ({LoginFailed.code}, GUESSES)
    assert cost_s < CORE_SHARE_MAX * 60
