"""Questions to etcd: which member is asked, what an answer may be, and the sentences of its errors."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from headrace_mq._net.address import BrokerAddress, ClientFiles, ClientLogin
from headrace_mq.cluster.records.etcd_gateway import EtcdGateway, parse_etcd
from headrace_mq.errors import LoginFailed, MessageQueueError, TlsFailed

PATH = "/v3/kv/range"
SECRET = "not for logs"


def http(body: Any, status: int = 200) -> bytes:
    return b"HTTP/1.0 %d Some\r\nContent-Type: application/json\r\n\r\n%b" % (
        status,
        body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def refusal(reason: str, status: int = 400) -> bytes:
    # etcd 3.4 and 3.5 say it once more as "error".
    return http({"code": 3, "message": reason, "details": []}, status)


class _Count(msgspec.Struct):
    count: int


class Member:
    """Gives what it was told to give, answer by answer; the last one again and again."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []
        self.place = ("127.0.0.1", 0)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(one[16:]) for one in head.splitlines() if one.startswith("Content-Length"))
        token = next((one[15:] for one in head.splitlines() if one.startswith("Auth")), "")
        self.asked.append((head.split()[1], token, json.loads(await reader.readexactly(size))))
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()


@pytest.fixture
async def members() -> AsyncIterator[Callable[..., Any]]:
    """Starts members that give these answers."""
    async with AsyncExitStack() as stack:

        async def start(*answers: bytes | None) -> Member:
            made = Member(*answers)
            server = await asyncio.start_server(made.answer, "127.0.0.1")
            stack.callback(server.close)
            made.place = server.sockets[0].getsockname()[:2]
            return made

        yield start


def gateway(*places: tuple[str, int], **parts: Any) -> EtcdGateway:
    limit = parts.pop("timeout_ms", 20_000)
    return EtcdGateway(BrokerAddress(places, **parts), timeout_ms=limit)


async def test_an_answer_is_read_and_its_numbers_may_be_texts(members: Any) -> None:
    dated = http({"header": {}, "count": "12"}).replace(
        b"\r\n", b"\r\nDate: Thu, 01 Jan 1970 00:00:02 GMT\r\n", 1
    )
    one = await members(dated)
    asking = gateway(one.place)
    assert (await asking.ask(PATH, {"key": b"k"}, _Count)).count == 12
    assert asking.answered_at_ms == 2_000
    assert one.asked == [(PATH, "", {"key": "aw=="})]


async def test_a_member_that_accepts_no_connection_is_passed_over_and_asked_last(
    members: Any, free_port: Callable[[], int]
) -> None:
    other = await members(http({}))
    asking = gateway(("127.0.0.1", free_port()), other.place)
    for _ in range(2):
        assert await asking.ask(PATH, {}, dict) == {}
    assert len(other.asked) == 2


async def test_no_member_at_all_is_said_with_each_reason(free_port: Callable[[], int]) -> None:
    places = [("127.0.0.1", free_port()) for _ in range(2)]
    with pytest.raises(OSError, match=f":{places[0][1]}: .*; .*:{places[1][1]}: "):
        await gateway(*places).ask(PATH, {}, dict)


async def test_a_question_that_was_sent_is_not_sent_to_another_member(members: Any) -> None:
    silent, other = await members(None), await members(http({}))
    asking = gateway(silent.place, other.place, timeout_ms=200)
    with pytest.raises(TimeoutError, match="gives no answer in time"):
        await asking.ask(PATH, {}, dict)
    assert other.asked == []
    assert await asking.ask(PATH, {}, dict) == {}


async def test_a_member_that_refuses_is_asked_last(members: Any) -> None:
    alone = await members(refusal("etcdserver: no leader", 503))
    other = await members(http({}))
    asking = gateway(alone.place, other.place)
    with pytest.raises(OSError, match="503, etcdserver: no leader"):
        await asking.ask(PATH, {}, dict)
    assert await asking.ask(PATH, {}, dict) == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "ended the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        (http(b'{"count": '), "cannot be read"),
        (http(b"[]"), "cannot be read"),
        (http(b"Not Found", 404), "use etcd 3.4 or later"),
        (refusal("etcdserver: user name is empty"), "add user=NAME"),
        (refusal("etcdserver: permission denied", 403), "begin with headrace/"),
        (http(b"Client sent an HTTP request to an HTTPS server.\n", 400), "write etcds://"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + bytes(2 << 20), "more than 1,048,576 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_answer_that_is_none_is_reported_with_what_to_do(
    members: Any, said: bytes, told: str
) -> None:
    one = await members(said)
    with pytest.raises(OSError, match=told):
        await gateway(one.place).ask(PATH, {}, dict)


@pytest.fixture
def login(tmp_path: Path) -> ClientLogin:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(SECRET + "\n", encoding="utf-8")
    return ClientLogin("ann", file)


@pytest.mark.parametrize(
    "stale", ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"]
)
async def test_a_token_that_has_ended_is_renewed_once(
    members: Any, login: ClientLogin, stale: str
) -> None:
    one = await members(
        http({"token": "t1"}), http({}), refusal(stale, 401), http({"token": "t2"}), http({})
    )
    asking = gateway(one.place, login=login)
    for _ in range(2):
        await asking.ask(PATH, {}, dict)
    asked = {"name": "ann", "password": SECRET}
    into = ("/v3/auth/authenticate", "", asked)
    assert one.asked == [into, (PATH, "t1", {}), (PATH, "t1", {}), into, (PATH, "t2", {})]
    one.answers[:] = [refusal(stale, 401), http({"token": "t3"}), refusal(stale, 401)]
    with pytest.raises(OSError, match=stale):
        await asking.ask(PATH, {}, dict)


async def test_a_refused_login_says_what_to_check_and_not_the_password(
    members: Any, login: ClientLogin
) -> None:
    one = await members(refusal("etcdserver: authentication failed, invalid user ID or password"))
    with pytest.raises(OSError, match="check the user") as refused:
        await gateway(one.place, login=login).ask(PATH, {}, dict)
    assert SECRET not in str(refused.value)
    login.password_file.chmod(0o644)
    with pytest.raises(LoginFailed, match="chmod 600"):
        await gateway(one.place, login=login).ask(PATH, {}, dict)


async def test_a_member_without_tls_is_named(members: Any, tmp_path: Path) -> None:
    one = await members(http({}))
    with pytest.raises(TlsFailed, match="no-such-file"):
        await gateway(one.place, tls=ClientFiles(ca=tmp_path / "no-such-file")).ask(PATH, {}, dict)
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = silent.getsockname()
        with pytest.raises(OSError, match="accepts no connection in time"):
            await gateway(place, tls=ClientFiles(ca=authority), timeout_ms=100).ask(PATH, {}, dict)


def test_an_address_of_members_is_read() -> None:
    assert parse_etcd("etcd://a:1,[::1]:2/") == BrokerAddress((("a", 1), ("::1", 2)))
    secured = parse_etcd("etcds://a:1?ca=ca.pem&user=ann&password_file=ann.txt")
    assert secured.tls == ClientFiles(Path("ca.pem"))
    assert secured.login == ClientLogin("ann", Path("ann.txt"))
    assert parse_etcd("etcd://a:1/?user=ann&password_file=f").login is not None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("etcd://a", "'a' is no HOST:PORT"),
        ("etcd://a:1,", "'' is no HOST:PORT"),
        ("etcd://", "'' is no HOST:PORT"),
        ("etcd://a:1/key", "'a:1/key' is no HOST:PORT"),
        ("etcd://a:1?ca=ca.pem", "no option 'ca'"),
        ("etcds://a:1?certificate=c.pem", "go together"),
        ("etcd://a:1?user=ann", "go together"),
        (f"etcd://ann:{SECRET}@a:1", "lists of processes"),
        (f"etcd://a:1?user=ann&password={SECRET}", "no option 'password'"),
    ],
)
def test_a_wrong_address_shows_an_example_and_no_password(url: str, told: str) -> None:
    with pytest.raises(MessageQueueError, match=told) as wrong:
        parse_etcd(url)
    assert "etcds://10.0.0.1:2379" in str(wrong.value)
    assert SECRET not in str(wrong.value)
