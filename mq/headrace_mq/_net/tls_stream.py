"""
TLS between a socket and a connection: to the connection it is a transport, to the socket a protocol.

    Connection or ClientConnection  ──write──▶  TlsStream  ──encrypted──▶  socket
                                    ◀──data───             ◀──────────────

It passes on what arrives at once and holds nothing back, so flow control is that of the socket. Unlike
asyncio's own (`SSLProtocol`) it can close one direction, tells a peer why the handshake failed, can answer a
peer that does not speak TLS, and has no buffer of 256 KiB for each connection.

Used by the server and by links, for TLS alone; uses `ssl` for all that is secret. It knows no frames.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

from headrace_mq._net.certificates import broken_sentence
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import TlsFailed

__all__ = ["TlsStream"]

# Given to OpenSSL at a time. Its buffers grow to what passes through and stay as large as that: this bounds
# what each connection keeps. Two records of the largest size.
SLICE_BYTES: Final = 32 << 10
# A TLS record holds no more.
RECORD_BYTES: Final = 16 << 10
# Written before the handshake is done: a handshake of the layer above.
EARLY_BYTES_MAX: Final = 256 << 10
# What a peer that is turned away may take to read why.
LINGER_S: Final = 5.0

Part = bytes | bytearray | memoryview

_log = get_logger(__name__)


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """One connection with TLS; make it with `of_client` or `of_server`.

    Attributes:
        failure: why there is no connection, at a client.
    """

    def __init__(
        self, inner: asyncio.Protocol, context: ssl.SSLContext, *, server_name: str | None
    ) -> None:
        super().__init__()
        self._inner = inner
        self._server_name = server_name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._answer_plain: Callable[[bytes], bytes] | None = None
        self._lower: asyncio.Transport
        self._early: list[bytes] = []
        self._early_bytes = 0
        # To be called when the handshake is done.
        self._at_once: Callable[[], None] | None = None
        self._is_up = False
        # Nothing more is sent, and what still arrives is dropped.
        self._ended = False
        self.failure: TlsFailed | None = None

    @classmethod
    def of_client(cls, inner: asyncio.Protocol, context: ssl.SSLContext, host: str) -> Self:
        """The side that connects, and makes sure that the other one is `host`."""
        return cls(inner, context, server_name=host)

    @classmethod
    def of_server(
        cls,
        inner: asyncio.Protocol,
        context: ssl.SSLContext,
        answer_plain: Callable[[bytes], bytes],
    ) -> Self:
        """The side that accepts; `answer_plain` tells what a peer gets that sends no TLS but this."""
        stream = cls(inner, context, server_name=None)
        stream._answer_plain = answer_plain
        return stream

    # --- as the protocol of a socket --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake. The connection above counts from now on, with its limits."""
        self._lower = transport  # type: ignore[assignment]  # of a socket
        self._inner.connection_made(self)
        if self._server_name is not None:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        """Decrypts what came, and passes it on."""
        answer, self._answer_plain = self._answer_plain, None
        if answer is not None and not _looks_like_tls(data):
            self._lower.write(answer(data))
            self._turn_away()
        if self._ended:
            return
        found: list[bytes] = []
        if len(data) <= SLICE_BYTES:
            self._take(data, found)
        else:
            view = memoryview(data)
            for at in range(0, len(data), SLICE_BYTES):
                self._take(view[at : at + SLICE_BYTES], found)
        if found:
            self._inner.data_received(found[0] if len(found) == 1 else b"".join(found))

    def eof_received(self) -> None:
        """Lets the socket close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the connection above why, as far as that is known."""
        self._ended = True
        if exc is None and self._server_name is not None and not self._is_up:
            exc = ConnectionError("it was closed during the TLS handshake")
        self._inner.connection_lost(self.failure or exc)

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is written to."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read most of it."""
        self._inner.resume_writing()

    # --- as the transport of a connection ---------------------------------------------------------

    def write(self, data: Part) -> None:
        """Encrypts and sends; before the handshake is done it is kept, up to EARLY_BYTES_MAX."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Part]) -> None:
        """As `write`, in one go."""
        if self._ended:
            return
        if not self._is_up:
            self._keep_early(list_of_data)
            return
        sealed: list[bytes] = []
        try:
            for data in list_of_data:
                if len(data) <= SLICE_BYTES:
                    self._tls.write(data)
                    sealed.append(self._outgoing.read())
                else:
                    view = memoryview(data)
                    for at in range(0, len(data), SLICE_BYTES):
                        self._tls.write(view[at : at + SLICE_BYTES])
                        sealed.append(self._outgoing.read())
        except ssl.SSLError as error:
            self._fail(error)
            return
        if len(sealed) == 1:
            self._lower.write(sealed[0])
        else:
            self._lower.writelines(sealed)

    def write_eof(self) -> None:
        """Ends what this side sends; the other one may go on, and is not listened to."""
        self._finish(self._lower.write_eof)

    def close(self) -> None:
        """Sends what was written, says goodbye, and closes."""
        self._finish(self._lower.close)

    def abort(self) -> None:
        """Closes at once."""
        self._ended = True
        self._lower.abort()

    def is_closing(self) -> bool:
        """Whether the socket is closed or being closed."""
        return self._lower.is_closing()

    def pause_reading(self) -> None:
        """Stops reading from the socket; what was on its way may still arrive."""
        if not self._lower.is_closing():
            self._lower.pause_reading()

    def resume_reading(self) -> None:
        """Reads on."""
        if not self._lower.is_closing():
            self._lower.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets when writing is paused, and resumed, in encrypted bytes."""
        self._lower.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken."""
        return self._lower.get_write_buffer_size() + self._early_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket knows; `peercert` is the other side's certificate, if it was checked."""
        if name == "peercert":
            return (self._tls.getpeercert() if self._is_up else None) or default
        return self._lower.get_extra_info(name, default)

    # --- the work -----------------------------------------------------------------------------------

    def _take(self, data: Part, found: list[bytes]) -> None:
        """Decrypts a part of what came, and appends it."""
        if self._ended:
            return
        self._incoming.write(data)
        if not self._is_up:
            self._shake_hands()
        if not self._is_up:
            return
        try:
            while self._incoming.pending or self._tls.pending():
                read = self._tls.read(RECORD_BYTES)
                if not read:
                    # The peer said goodbye.
                    self._lower.close()
                    break
                found.append(read)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            # An answer of TLS itself, to new keys say.
            self._lower.write(self._outgoing.read())

    def _shake_hands(self) -> None:
        if self._ended:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._lower.write(self._outgoing.read())
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._is_up = True
        if self._outgoing.pending:
            self._lower.write(self._outgoing.read())
        early, self._early, self._early_bytes = self._early, [], 0
        if early:
            self.write(b"".join(early))
        if self._at_once is not None:
            self._finish(self._at_once)

    def _keep_early(self, parts: Iterable[Part]) -> None:
        for data in parts:
            self._early.append(bytes(data))
            self._early_bytes += len(data)
        if self._early_bytes > EARLY_BYTES_MAX:
            self.abort()

    def _finish(self, end: Callable[[], None]) -> None:
        if self._ended:
            end()
        elif self._is_up:
            self._ended = True
            # It would wait for the other side's goodbye; ours is written.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            if self._outgoing.pending:
                self._lower.write(self._outgoing.read())
            end()
        elif self._early:
            self._at_once = end
        else:
            self._ended = True
            end()

    def _fail(self, error: ssl.SSLError) -> None:
        """Tells the other side why, and ends the connection."""
        if self._outgoing.pending:
            self._lower.write(self._outgoing.read())
        if self._server_name is not None:
            self.failure = TlsFailed(broken_sentence(error, self._server_name))
            self._ended = True
            self._lower.close()
            return
        peer = self._lower.get_extra_info("peername")
        reason = (error.reason or str(error)).lower().replace("_", " ")
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not believed: {error.verify_message}"
        _log.warning("connection refused", host=peer and peer[0], reason=f"TLS: {reason}")
        self._turn_away()

    def _turn_away(self) -> None:
        # Closing a socket with unread bytes resets it, and a reset takes away what says why.
        self._ended = True
        self._lower.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self._lower.abort)


def _looks_like_tls(data: bytes) -> bool:
    """Whether the first bytes may begin a handshake of TLS, which no frame that is allowed here does."""
    return data[:2] == b"\x16\x03"[: len(data)] and data[2:3] != b"\x00"
