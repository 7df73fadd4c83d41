"""
Who has signed in: each session has a connection to the broker with its own user, and ends by itself.

    sign in ──▶ the broker checks the password ──▶ session ── idle, too old, signed out ──▶ ended

A broker without a login knows no users; then all browsers share one connection. A password stands, while its session
lasts, in a file in memory (/dev/shm, where there is one) that only this user of the machine can read, because the
client reads it again for each connection; it goes with the session.

Used by the console; uses `AdminClient`.
"""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from headrace._runtime.private_files import open_new
from headrace.console.problems import Mistake
from headrace.console.settings import ConsoleSettings
from headrace.errors import HeadraceError
from headrace_mq._net.address import BrokerAddress, ClientLogin
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import ConnectionLost, LoginFailed, MessageQueueError, RequestTimeout

__all__ = ["Session", "Sessions"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder that only this user opens is made in it
# The process that it is of follows.
_PREFIX: Final = "headrace-console-"
_ID_BYTES: Final = 32
# As the broker takes.
_PASSWORD_BYTES_MAX: Final = 1_024
_PER_S: Final = 1_000
# An address of a broker or of name servers, with its options.
_ADDRESS: Final = re.compile(
    r"\b(?:nameserver(?:\+tls)?|tcp|tls)://[^\s?]+\?\S*?(?=[\s:;,\"'`)]|$)"
)


class Session:
    """A user who has signed in, or all of them where the broker has no login.

    Attributes:
        user: its name; empty without a login.
        admin: its connection to the broker.
    """

    def __init__(self, user: str, admin: AdminClient, password: Path | None, now_s: float) -> None:
        self.user = user
        self.admin = admin
        self.begun_s = self.seen_s = now_s
        self._password = password
        self._changes: set[asyncio.Task[Any]] = set()

    @property
    def busy(self) -> bool:
        """Whether a change of it goes on."""
        return bool(self._changes)

    def hold(self, change: "asyncio.Task[Any]") -> None:
        """Ends a change with the session, where it goes on so long."""
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)

    async def aclose(self) -> None:
        """Ends its changes and the connection, and forgets the password."""
        for change in self._changes:
            change.cancel()
        if self._password is not None:
            self._password.unlink(missing_ok=True)
        await self.admin.aclose()


class Sessions:
    """All sessions of a console; use it in an `async with` block.

    Args:
        broker: its address; a user that it names is left out.
        settings: how many there may be, and how long.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        settings: ConsoleSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker._replace(login=None)
        self._settings = settings
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._shared: Session | None = None
        self._asks: bool | None = None
        self._turn = asyncio.Lock()
        self._folder: Path | None = None

    @property
    def place(self) -> str:
        """Where the broker is, for people."""
        return str(self._broker._replace(tls=None))

    async def __aenter__(self) -> "Sessions":
        parent = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
        for folder in parent.glob(f"{_PREFIX}*"):
            _remove_left(folder)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in [*self._open.values(), *([self._shared] if self._shared else [])]:
            await session.aclose()
        self._open.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def asks_login(self) -> bool:
        """Whether the broker serves only users that log in.

        Raises:
            ConnectionLost: it does not answer.
        """
        async with self._turn:
            if self._asks is None:
                admin = self._client(self._broker)
                try:
                    await admin.start()
                except LoginFailed:
                    self._asks = True
                else:
                    self._asks, self._shared = False, Session("", admin, None, self._clock())
            return self._asks

    async def open(self, user: str, password: str) -> str:
        """Lets a user in, and returns the secret name of its session.

        Raises:
            LoginFailed: the broker does not let it in; the sentence says why.
            ConnectionLost: it does not answer.
        """
        if not user or not 1 <= len(password.encode()) <= _PASSWORD_BYTES_MAX:
            raise LoginFailed("write your name and your password")
        await self._sweep()
        if len(self._open) >= self._settings.sessions_max:
            raise LoginFailed("as many people as sessions_max have signed in; try again later")
        assert self._folder is not None
        name = secrets.token_urlsafe(_ID_BYTES)
        file = self._folder / secrets.token_hex(_ID_BYTES)
        with open_new(file, "xb") as opened:
            opened.write(password.encode() + b"\n")
        admin = self._client(self._broker._replace(login=ClientLogin(user, file)))
        try:
            await admin.start()
        except ConnectionLost as error:
            file.unlink()
            raise self._plain(error) from None
        except BaseException:
            file.unlink()
            raise
        self._open[name] = Session(user, admin, file, self._clock())
        return name

    async def find(self, name: str) -> Session | None:
        """Returns the session of a name; the shared one where the broker has no login; None: sign in first.

        Raises:
            ConnectionLost: the broker does not answer.
        """
        if not await self.asks_login():
            return self._shared
        await self._sweep()
        session = self._open.get(name)
        if session is not None:
            session.seen_s = self._clock()
        return session

    async def still(self, session: Session) -> bool:
        """Whether a session has not ended; asking does not make it last longer."""
        await self._sweep()
        return session is self._shared or session in self._open.values()

    async def end(self, name: str) -> None:
        """Ends a session, if there is one of that name."""
        if (session := self._open.pop(name, None)) is not None:
            await session.aclose()

    @asynccontextmanager
    async def asking(self, session: Session) -> AsyncIterator[None]:
        """Maps what a verb of a session raises in the block: to its sentence without the file of the password.

        Raises:
            Mistake: a value did not fit.
            LoginFailed: the broker lets the user in no more; the session has ended.
            MessageQueueError, HeadraceError: as the verb raised it.
        """
        try:
            yield
        except ValueError as error:
            raise Mistake(self.plain(str(error))) from error
        except (MessageQueueError, HeadraceError) as error:
            raise await self.failed(session, error) from error

    async def failed(self, session: Session, error: Exception) -> Exception:
        """Returns an error as the browser shall read it; ends a session whose user the broker lets in no more."""
        trouble = session.admin.trouble
        if not isinstance(error, RequestTimeout) or not isinstance(trouble, LoginFailed):
            return self._plain(error)
        if session is self._shared:
            self._shared, self._asks = None, None
        for name in [one for one, each in self._open.items() if each is session]:
            await self.end(name)
        return trouble

    def _plain(self, error: Exception) -> Exception:
        told = str(error)
        plain = self.plain(told)
        return error if plain == told else type(error)(plain)

    def plain(self, text: str) -> str:
        """Returns a text with the broker's place instead of its address, which names the file of the password."""
        return _ADDRESS.sub(self.place, text)

    def _client(self, address: BrokerAddress) -> AdminClient:
        return AdminClient(str(address), timeout_ms=self._settings.timeout_ms)

    async def _sweep(self) -> None:
        now, settings = self._clock(), self._settings
        for name, session in list(self._open.items()):
            if session.busy:
                session.seen_s = now
            idle, old = now - session.seen_s, now - session.begun_s
            if idle * _PER_S > settings.idle_ms or old * _PER_S > settings.session_ms:
                await self.end(name)


def _remove_left(folder: Path) -> None:
    """Removes the passwords of a console that was killed; those of other users of this machine stay."""
    pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
    # On Windows signal 0 would end the process.
    if not pid.isdecimal() or os.name == "nt":
        return
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # a process of another user
        return
