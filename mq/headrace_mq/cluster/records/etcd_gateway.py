"""
Questions to etcd over its JSON gateway: each is one POST to the first member that accepts a connection.

    etcd://10.0.0.1:2379,10.0.0.2:2379                         without TLS
    etcds://10.0.0.1:2379?ca=ca.pem&user=ann&password_file=ann.txt

Each question has a connection of its own, in HTTP/1.0: the answer ends with the connection, and no connection can be stale. A
question that was sent is not sent again elsewhere, because it may have been answered by a change.

Used by `etcd`; uses the files and the login of addresses as clients of a broker do.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from headrace_mq._net.address import (
    BrokerAddress,
    ClientFiles,
    parse_address,
    place_name,
    reasons_of,
)
from headrace_mq._net.certificates import client_context
from headrace_mq._net.login import read_password
from headrace_mq.errors import MessageQueueError

__all__ = ["SCHEMES", "EtcdGateway", "parse_etcd"]

SCHEMES = ("etcd://", "etcds://")
# A record takes some hundred bytes; what is longer is no answer of etcd to these questions.
_ANSWER_BYTES_MAX = 1 << 20
_REASON_CHARS_MAX = 200
_OK, _NOT_FOUND = 200, 404
_EXAMPLE = "etcd://10.0.0.1:2379,10.0.0.2:2379, or etcds://10.0.0.1:2379?ca=ca.pem&user=NAME&password_file=FILE"
# etcd says so before it looks at a question: a token has ended, or users were changed since it was given.
_STALE = ("invalid auth token", "revision of auth store is old")
_ADVICE = {
    "user name is empty": "add user=NAME&password_file=FILE to its address",
    "authentication failed": "check the user and the file with its password",
    "authentication is not enabled": "leave user and password_file out of its address",
    "permission denied": "let the user read and write the keys that begin with headrace/",
    "Client sent an HTTP request to an HTTPS server": "write etcds:// instead of etcd://",
}

T = TypeVar("T")
_Place = tuple[str, int]


class _Failure(msgspec.Struct):
    message: str = ""


class _Token(msgspec.Struct):
    token: str = ""


def parse_etcd(url: str) -> BrokerAddress:
    """Reads the address of an etcd.

    Raises:
        MessageQueueError: it is none; shows an example.
    """
    scheme, _, rest = url.partition("://")
    hosts, mark, options = rest.partition("?")
    hosts = hosts.removesuffix("/")
    secured = "tls" if scheme == "etcds" else "tcp"
    try:
        _require_places(hosts)
        return BrokerAddress.parse(f"{secured}://{hosts}{mark}{options}")
    except ValueError as error:
        raise MessageQueueError(
            f"the address of the record is wrong: {error}; it looks like {_EXAMPLE}"
        ) from None


def _require_places(hosts: str) -> None:
    if "@" in hosts:
        raise ValueError("others see a password in it, in lists of processes")
    for each in hosts.split(","):
        try:
            parse_address(each)
        except ValueError:
            raise ValueError(f"{each!r} is no HOST:PORT") from None


class EtcdGateway:
    """Asks the members of one etcd; the one that failed last is asked last.

    Args:
        address: of its members, with how to connect and log in.
        timeout_ms: longest wait for a connection to any member, and for an answer.

    Attributes:
        answered_at_ms: the time of the last answer, by the clock of the member that gave it, to the second; Unix milliseconds.
    """

    def __init__(self, address: BrokerAddress, *, timeout_ms: int) -> None:
        self._places = list(address.places)
        self._tls = address.tls
        self._login = address.login
        self._timeout_s = timeout_ms / 1_000
        self._token = ""
        self._context: ssl.SSLContext | None = None
        self.answered_at_ms = 0

    async def ask(self, path: str, question: Mapping[str, Any], kind: type[T]) -> T:
        """Returns the answer to a question.

        Args:
            path: of the question, such as /v3/kv/range.
            question: its body; keys and values of etcd as bytes.
            kind: what the answer is read as.

        Raises:
            OSError: no member accepts a connection, or the one that did gives no answer or refuses; TimeoutError is one.
            LoginFailed, TlsFailed: a file of the address cannot be used.
        """
        if self._login is not None and not self._token:
            await self._log_in()
        status, body, place = await self._post(path, question)
        if self._token and any(each in _reason(body) for each in _STALE) and status != _OK:
            await self._log_in()
            status, body, place = await self._post(path, question)
        return _answer(status, body, place, kind)

    async def _log_in(self) -> None:
        assert self._login is not None
        self._token = ""
        password = read_password(self._login.password_file).get_secret_value()
        asked = {"name": self._login.user, "password": password}
        answered = await self._post("/v3/auth/authenticate", asked)
        self._token = _answer(*answered, _Token).token

    async def _post(self, path: str, question: Mapping[str, Any]) -> tuple[int, bytes, _Place]:
        """Returns the status, the body, and who answered."""
        body = msgspec.json.encode(question)
        reader, writer, place = await self._connect()
        try:
            async with asyncio.timeout(self._timeout_s):
                login = f"Authorization: {self._token}\r\n" if self._token else ""
                head = (
                    f"POST {path} HTTP/1.0\r\nHost: {place_name(place)}\r\nContent-Type: application/json\r\n"
                    f"{login}Content-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                status, date_ms, answer = _parts(await _until_end(reader), place)
                self.answered_at_ms = date_ms or self.answered_at_ms
        except OSError as error:
            self._ask_last(place)
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{place_name(place)} gives no answer in time") from error
            raise _in_words(error, place) from error
        finally:
            writer.transport.abort()
        if status != _OK:
            # It may have lost its peers, which others may have.
            self._ask_last(place)
        return status, answer, place

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, _Place]:
        failures: dict[_Place, Exception] = {}
        for place in list(self._places):
            try:
                context = self._own_context()
                async with asyncio.timeout(self._timeout_s / len(self._places)):
                    return *await asyncio.open_connection(*place, ssl=context), place
            except OSError as error:
                # The files may be new ones.
                self._context = None
                self._ask_last(place)
                failures[place] = _in_words(error, place)
        raise ConnectionError(reasons_of(failures))

    def _own_context(self) -> ssl.SSLContext | None:
        if self._tls is not None and self._context is None:
            self._context = client_context(ClientFiles(*self._tls))
            # etcd 3.4 and 3.5 speak no later one, unless an option says so.
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        return self._context

    def _ask_last(self, place: _Place) -> None:
        self._places.remove(place)
        self._places.append(place)


def _in_words(error: OSError, place: _Place) -> OSError:
    name = place_name(place)
    if isinstance(error, ssl.SSLCertVerificationError):
        return OSError(
            f"the certificate of {name} is not believed: {error.verify_message}; name its authority with ca=FILE"
        )
    if isinstance(error, ssl.SSLError):
        return OSError(f"TLS with {name} failed: {error.reason or error}")
    if isinstance(error, TimeoutError):
        return OSError(f"{name} accepts no connection in time")
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return ConnectionError(_ended(name))
    return error


def _ended(name: str) -> str:
    return f"{name} ended the connection without an answer; if it speaks TLS, write etcds:// instead of etcd://"


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while part := await reader.read(_ANSWER_BYTES_MAX):
        found += part
        if len(found) > _ANSWER_BYTES_MAX:
            raise ConnectionError(f"the answer has more than {_ANSWER_BYTES_MAX:,} bytes")
    return bytes(found)


def _parts(answer: bytes, place: _Place) -> tuple[int, int, bytes]:
    """Returns the status, the date in Unix milliseconds, or 0, and the body."""
    head, end, body = answer.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if not answer:
        raise ConnectionError(_ended(place_name(place)))
    if not end or not head.startswith(b"HTTP/") or not words[1].isdigit():
        raise ConnectionError(f"what listens at {place_name(place)} does not speak HTTP")
    date = re.search(rb"\r\n[Dd]ate: ([^\r]+)", head)
    date_ms = int(parsedate_to_datetime(date[1].decode()).timestamp() * 1_000) if date else 0
    return int(words[1]), date_ms, body


def _answer(status: int, body: bytes, place: _Place, kind: type[T]) -> T:
    name = place_name(place)
    if status == _NOT_FOUND:
        raise ConnectionError(
            f"{name} has no JSON gateway of version 3: use etcd 3.4 or later, with --enable-grpc-gateway"
        )
    if status != _OK:
        reason = _reason(body)
        advice = next((f"; {do}" for said, do in _ADVICE.items() if said in reason), "")
        raise ConnectionError(f"{name} answers {status}, {reason}{advice}")
    try:
        # Numbers of 64 bits are texts in this JSON.
        return msgspec.json.decode(body, type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ConnectionError(f"the answer of {name} cannot be read: {error}") from error


def _reason(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_Failure).message
    except msgspec.MsgspecError:
        said = body.decode("utf-8", "replace").strip()
    return said[:_REASON_CHARS_MAX]
