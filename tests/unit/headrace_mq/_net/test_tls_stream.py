"""TLS over a wire in memory: every byte arrives, in every cut, and each side hears why there is no connection."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace_mq._net.address import ClientFiles
from headrace_mq._net.certificates import (
    ServerCertificates,
    ServerFiles,
    client_context,
    subject_of,
)
from headrace_mq._net.tls_stream import EARLY_BYTES_MAX, SLICE_BYTES, TlsStream

PLAIN = b"no TLS here"


class Wire(asyncio.Transport):
    """One end of a socket: what is written waits until the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.half_closed = self.closed = self.aborted = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.half_closed
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.half_closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 1)}.get(name, default)


class Above(asyncio.Protocol):
    """A connection: what it got, and why it ended."""

    def __init__(self, greeting: bytes = b"") -> None:
        self.received = bytearray()
        self.reads = 0
        self.news: list[str] = []
        self.lost: list[Exception | None] = []
        self._greeting = greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        if self._greeting:
            self.transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.reads += 1

    def pause_writing(self) -> None:
        self.news.append("pause")

    def resume_writing(self) -> None:
        self.news.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Pair:
    """A client and a server, and the two wires between them."""

    def __init__(
        self,
        client: ssl.SSLContext,
        server: ssl.SSLContext,
        *,
        host: str = "localhost",
        greetings: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        self.at_client, self.at_server = Above(greetings[0]), Above(greetings[1])
        self.client = TlsStream.of_client(self.at_client, client, host)
        self.server = TlsStream.of_server(self.at_server, server, lambda data: PLAIN + data)
        self.client_wire, self.server_wire = Wire(), Wire()
        self.server.connection_made(self.server_wire)
        self.client.connection_made(self.client_wire)

    def move(self, cuts: Iterator[int] | None = None) -> None:
        """Carries everything over, cut as is wanted, until nothing is on its way."""
        ways = ((self.client_wire, self.server), (self.server_wire, self.client))
        while self.client_wire.sent or self.server_wire.sent:
            for wire, to in ways:
                whole = bytes(wire.sent)
                wire.sent.clear()
                while whole:
                    size = next(cuts, len(whole)) if cuts else len(whole)
                    to.data_received(whole[:size])
                    whole = whole[size:]


@pytest.fixture(scope="module")
def contexts(
    tmp_path_factory: pytest.TempPathFactory, authority: Any
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("certificates")
    ca = authority.write(folder)
    certificate, key = authority.issue(folder, common_name="reports", file="client")
    server = ServerFiles(*authority.issue(folder, "localhost"), client_ca=ca)
    return client_context(ClientFiles(ca, certificate, key)), ServerCertificates(server).context


@pytest.fixture
def pair(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Pair:
    made = Pair(*contexts)
    made.move()
    return made


@given(
    out=st.lists(st.integers(0, 3 * SLICE_BYTES), max_size=4),
    back=st.lists(st.integers(0, 3 * SLICE_BYTES), max_size=4),
    cuts=st.lists(st.integers(1, 70_000), max_size=60),
    at_once=st.booleans(),
)
@hypothesis_settings(max_examples=40)
def test_every_byte_arrives_once_and_in_order_however_it_is_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    out: list[int],
    back: list[int],
    cuts: list[int],
    at_once: bool,
) -> None:
    made = Pair(*contexts)
    steps = iter(cuts)
    if not at_once:
        made.move(steps)
    wanted: dict[str, bytes] = {}
    for name, stream, sizes in (("out", made.client, out), ("back", made.server, back)):
        parts = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
        wanted[name] = b"".join(parts)
        if at_once and len(wanted[name]) > EARLY_BYTES_MAX:
            return
        stream.writelines(parts[:2])
        for part in parts[2:]:
            stream.write(part)
    made.move(steps)
    assert bytes(made.at_server.received) == wanted["out"]
    assert bytes(made.at_client.received) == wanted["back"]
    assert made.at_client.lost == made.at_server.lost == []


def test_the_wire_carries_no_plain_word(pair: Pair) -> None:
    pair.client.write(b"a plain word")
    assert b"plain" not in pair.client_wire.sent
    pair.move()
    assert pair.at_server.received == b"a plain word"


def test_one_read_of_the_socket_is_one_read_of_the_connection(pair: Pair) -> None:
    pair.client.write(bytes(5 * SLICE_BYTES))
    pair.move()
    assert (len(pair.at_server.received), pair.at_server.reads) == (5 * SLICE_BYTES, 1)


def test_the_server_knows_the_subject_of_the_certificate_it_checked(pair: Pair) -> None:
    assert subject_of(pair.server.get_extra_info("peercert")) == "CN=reports,OU=Branch 7,O=Bank"
    assert pair.server.get_extra_info("peername") == ("192.0.2.1", 1)


def test_early_words_go_first_after_the_handshake(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    made = Pair(*contexts, greetings=(b"hello", b"welcome"))
    made.client.write(b" again")
    assert made.client.get_write_buffer_size() >= len(b"hello again")
    made.move()
    assert (made.at_server.received, made.at_client.received) == (b"hello again", b"welcome")


def test_before_the_handshake_only_so_much_is_kept(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    made = Pair(*contexts)
    made.client.write(bytes(EARLY_BYTES_MAX))
    assert not made.client_wire.aborted
    made.client.write(b"x")
    assert made.client_wire.aborted


@pytest.mark.parametrize("end", ["close", "write_eof"])
def test_a_client_turned_away_before_the_handshake_still_reads_why(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], end: str
) -> None:
    made = Pair(*contexts, greetings=(b"", b"no room"))
    getattr(made.server, end)()
    assert not made.server_wire.closed
    assert not made.server_wire.half_closed
    made.move()
    assert made.at_client.received == b"no room"
    assert (made.server_wire.closed, made.server_wire.half_closed) == (
        end == "close", end == "write_eof",
    )  # fmt: skip


def test_a_goodbye_closes_the_other_side_and_nothing_is_sent_behind_it(pair: Pair) -> None:
    pair.server.write(b"last words")
    pair.server.close()
    pair.server.write(b"too late")
    pair.move()
    assert pair.at_client.received == b"last words"
    assert (pair.server_wire.closed, pair.client_wire.closed) == (True, True)
    pair.client.connection_lost(None)
    assert pair.at_client.lost == [None]


def test_a_half_closed_side_drops_what_still_arrives(pair: Pair) -> None:
    pair.server.write(b"go")
    pair.server.write_eof()
    pair.client.write(b"still sending")
    pair.move()
    assert (pair.at_client.received, pair.at_server.received) == (b"go", b"")


def test_flow_control_is_that_of_the_socket(pair: Pair) -> None:
    pair.server.pause_reading()
    assert pair.server_wire.paused
    pair.server.resume_reading()
    assert not pair.server_wire.paused
    pair.server.pause_writing()
    pair.server.resume_writing()
    assert pair.at_server.news == ["pause", "resume"]


def test_a_changed_byte_ends_the_connection(pair: Pair) -> None:
    pair.server.write(b"ten pounds")
    pair.server_wire.sent[-1] ^= 1
    pair.client.data_received(bytes(pair.server_wire.sent))
    assert pair.at_client.received == b""
    assert pair.client_wire.closed
    assert "decryption failed" in str(pair.client.failure)


async def test_a_client_without_tls_gets_an_answer_it_can_read(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    made = Pair(*contexts)
    made.server_wire.sent.clear()
    made.server.data_received(b"\x16\x03\x00\x00 a frame")
    assert made.server_wire.sent == PLAIN + b"\x16\x03\x00\x00 a frame"
    made.server.data_received(b"and more")
    assert made.server_wire.half_closed
    assert made.at_server.received == b""


async def test_each_side_hears_why_there_is_no_connection(
    tmp_path: Path, authority: Any, other_authority: Any
) -> None:
    ca = authority.write(tmp_path)
    (tmp_path / "other").mkdir()
    other = other_authority.write(tmp_path / "other")
    files = ServerFiles(*authority.issue(tmp_path, "localhost"))
    plain, asking = (
        ServerCertificates(each).context for each in (files, files._replace(client_ca=ca))
    )
    for host, client, server, sentence in (
        ("elsewhere", ClientFiles(ca), plain, "is not for elsewhere"),
        ("localhost", ClientFiles(other), plain, "is not known here"),
        ("localhost", ClientFiles(ca), asking, "asks for a client's certificate"),
        (
            "localhost",
            ClientFiles(ca, *other_authority.issue(tmp_path, common_name="eve", file="eve")),
            asking,
            "does not know the authority",
        ),
    ):
        made = Pair(client_context(client), server, host=host, greetings=(b"hello", b""))
        made.move()
        made.client.connection_lost(None)
        assert sentence in str(made.client.failure)
        assert made.at_client.lost == [made.client.failure]
        assert made.at_server.received == b""
        assert made.server_wire.half_closed


def test_an_end_during_the_handshake_has_a_reason(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    made = Pair(*contexts)
    made.client.connection_lost(None)
    assert [str(each) for each in made.at_client.lost] == ["it was closed during the TLS handshake"]
