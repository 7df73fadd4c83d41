"""
Logins with SCRAM-SHA-256 or a key of Ed25519: the exchange, and what stops those who guess.

    client                                    broker
      │ ── LOGIN: name, random number ──────▶ │  finds salt and keys; of an unknown name it makes some up
      │ ◀─ salt, rounds, both numbers ─────── │
      │ ── LOGIN: proof of the password ────▶ │  a few hashes; the client hashes 4,096 times
      │ ◀─ proof that the broker knows it ─── │

    client                                    broker
      │ ── LOGIN: name, random number ──────▶ │
      │ ◀─ another random number ──────────── │
      │ ── LOGIN: signature of both ────────▶ │  checks it by the user's key; of an unknown name it makes one up

An unknown name goes the same way and takes the same time, and fails at the end. After `FAILURES_MAX` failures a
name is locked for the address they came from; the same name gets in from other addresses, so no one can lock
out others by guessing.

Used by the handler of LOGIN; uses `scramp` and the users. It never knows sockets: a connection is only compared.
"""

import hmac
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from headrace_mq.broker.users.key_exchange import KeyExchange
from headrace_mq.errors import InvalidArgument, LoginFailed
from headrace_mq.protocol.access import (
    ED25519,
    SCRAM,
    Credentials,
    Login,
    LoginAnswer,
)

__all__ = ["FAILURES_MAX", "LOCKED_MS", "WATCHED_MAX", "LoggedIn", "Logins"]

C = TypeVar("C", bound=Hashable)

# A person mistypes a few times; a program with an old password tries again and again.
FAILURES_MAX = 10
# How long failures count, and how long a name is locked then: 20 guesses in a minute from one address.
LOCKED_MS = 30_000
# Pairs of name and address of which failures are counted; the oldest is forgotten. About 2 MB.
WATCHED_MAX = 10_000
_ROUNDS = 4_096
# A name of 200 characters, each escaped, and a nonce.
MESSAGE_CHARACTERS_MAX = 2_048


class LoggedIn(NamedTuple):
    """What one message of a client came to.

    Attributes:
        answer: to it.
        user: who has logged in; empty as long as the exchange goes on.
    """

    answer: LoginAnswer
    user: str = ""


class _Failures(NamedTuple):
    failed: int
    since_ms: int


class _Exchange(NamedTuple):
    name: str
    server: Any


class Logins(Generic[C]):
    """All exchanges of one broker.

    Args:
        credentials: finds what a user's proof is checked by.
        secret: makes up what unknown users have.
        now_ms: tells the time.
        public_key: finds what a user's signature is checked by; empty where there is none.

    Attributes:
        named: whom the last message was about, as far as it said; for the audit of a failure.
        refused: logins that failed since the start.
    """

    def __init__(
        self,
        credentials: Callable[[str], Credentials | None],
        secret: Callable[[], bytes],
        now_ms: Callable[[], int],
        public_key: Callable[[str], bytes] = lambda _: b"",
    ) -> None:
        self._credentials = credentials
        self._public_key = public_key
        self._secret = secret
        self._now_ms = now_ms
        self.named = ""
        self.refused = 0
        self._exchanges: dict[C, _Exchange | KeyExchange] = {}
        self._failures: dict[tuple[str, str], _Failures] = {}

    def step(self, connection: C, host: str, request: Login) -> LoggedIn:
        """Takes the next message of a connection from `host`.

        Raises:
            LoginFailed: name and password do not fit, the name is locked for this address, or the mechanism changed.
            InvalidArgument: there is no such mechanism.
        """
        self.named = ""
        try:
            return self._step(connection, host, request)
        except LoginFailed:
            self.refused += 1
            raise

    def _step(self, connection: C, host: str, request: Login) -> LoggedIn:
        if request.mechanism not in {SCRAM, ED25519}:
            raise InvalidArgument(f"this broker knows the logins {SCRAM} and {ED25519}")
        if len(request.message) > MESSAGE_CHARACTERS_MAX:
            raise LoginFailed("this is no message of a login; it is too long")
        exchange = self._exchanges.pop(connection, None)
        if exchange is None:
            begin = self._begin if request.mechanism == SCRAM else self._begin_by_key
            return LoggedIn(LoginAnswer(begin(connection, host, request.message)))
        if isinstance(exchange, KeyExchange) is not (request.mechanism == ED25519):
            self.named = exchange.name
            self._note_failure(exchange.name, host)
            raise LoginFailed(
                "a login goes on with the mechanism that it began with; begin it again"
            )
        if isinstance(exchange, KeyExchange):
            return self._end_by_key(exchange, host, request.message)
        return self._end(exchange, host, request.message)

    def forget(self, connection: C) -> None:
        """Drops the exchange of a closed connection."""
        self._exchanges.pop(connection, None)

    def _begin(self, connection: C, host: str, message: str) -> str:
        asked: list[str] = []

        def find(name: str) -> tuple[bytes, bytes, bytes, int]:
            asked.append(name)
            self.named = name
            # Made up for each name, so that a known one takes as long.
            made_up = self._made_up(name)
            found = self._credentials(name) or made_up
            return found.salt, found.stored_key, found.server_key, found.iterations

        server = _server(find)
        _guarded(server.set_client_first, message)
        self._require_unlocked(asked[0], host)
        first: str = server.get_server_first()
        self._exchanges[connection] = _Exchange(asked[0], server)
        return first

    def _end(self, exchange: _Exchange, host: str, message: str) -> LoggedIn:
        name, server = exchange
        self.named = name
        self._require_unlocked(name, host)  # many exchanges may have begun at once
        try:
            _guarded(server.set_client_final, message)
            if self._credentials(name) is None:  # disabled, or made up and guessed
                raise _wrong(name)
        except LoginFailed:
            self._note_failure(name, host)
            raise _wrong(name) from None
        self._failures.pop((name, host), None)
        return LoggedIn(LoginAnswer(server.get_server_final(), done=True), name)

    def _begin_by_key(self, connection: C, host: str, message: str) -> str:
        begun = KeyExchange.begin(message)
        self.named = begun.name
        self._require_unlocked(begun.name, host)
        self._exchanges[connection] = begun
        return begun.answer

    def _end_by_key(self, exchange: KeyExchange, host: str, signature: str) -> LoggedIn:
        name = self.named = exchange.name
        self._require_unlocked(name, host)
        seed = hmac.digest(self._secret(), f"key:{name}".encode(), "sha256")
        if not exchange.is_proven(signature, self._public_key(name), seed):
            self._note_failure(name, host)
            raise _wrong(name)
        self._failures.pop((name, host), None)
        return LoggedIn(LoginAnswer("", done=True), name)

    def _made_up(self, name: str) -> Credentials:
        """The same at each attempt, and not to be told from those of a user that exists."""
        salt, stored, served = (
            hmac.digest(self._secret(), f"{what}:{name}".encode(), "sha256")
            for what in ("salt", "stored", "server")
        )
        return Credentials(salt, stored, served, _ROUNDS)

    def _require_unlocked(self, name: str, host: str) -> None:
        failures = self._failures.get((name, host))
        if failures is None or failures.failed < FAILURES_MAX:
            return
        left_ms = failures.since_ms + LOCKED_MS - self._now_ms()
        if left_ms > 0:
            raise LoginFailed(
                f"too many logins as {name!r} failed from {host}; correct the password, and try again in"
                f" {-(-left_ms // 1_000)} s"
            )
        del self._failures[name, host]

    def _note_failure(self, name: str, host: str) -> None:
        now_ms = self._now_ms()
        before = self._failures.pop((name, host), None)
        if before is None or now_ms - before.since_ms > LOCKED_MS:
            before = _Failures(0, now_ms)
        # The time of the lock begins with its last failure.
        count = before.failed + 1
        self._failures[name, host] = _Failures(
            count, now_ms if count >= FAILURES_MAX else before.since_ms
        )
        if len(self._failures) > WATCHED_MAX:
            del self._failures[next(iter(self._failures))]


def _server(find: Callable[[str], tuple[bytes, bytes, bytes, int]]) -> Any:
    from scramp import ScramMechanism

    return ScramMechanism(SCRAM).make_server(find)


def _guarded(take: Callable[[str], None], message: str) -> None:
    """Gives a message to the library; all it says of hostile bytes is a failed login."""
    from scramp import ScramException

    try:
        take(message)
    except (ScramException, ValueError, LookupError, TypeError) as error:
        raise LoginFailed("this is no message of SCRAM-SHA-256, or the proof is wrong") from error


def _wrong(name: str) -> LoginFailed:
    return LoginFailed(
        f"the broker does not let {name!r} in: the name or the password is wrong, or the user is disabled; check"
        " HEADRACE_USER and the file that HEADRACE_PASSWORD_FILE names"
    )
