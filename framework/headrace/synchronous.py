"""
Commands and rows for programs without an event loop: Django and Flask views, scripts, notebooks.

    your threads ──▶ SynchronousBus ──▶ one thread with an event loop ──▶ command bus, read models

The thread begins at the first call, and again in a child after `fork`. So you can make a bus at import
time, and use it in all threads of a server's workers.

Used by you; uses `App.client`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from pydantic import BaseModel

from headrace.access.principal import Principal
from headrace.app import App
from headrace.bus import EXECUTED, CommandBus, CommandResult, WaitFor
from headrace.domain.message import Command
from headrace.errors import HeadraceError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.reader import Page, ProjectionReader
from headrace.results import WatchedResult
from headrace.settings import Settings

__all__ = ["SynchronousBus", "SynchronousReader"]

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")


class _Client(NamedTuple):
    """What lives in the thread, and how to end it; of one process."""

    process: int
    thread: threading.Thread
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Event
    bus: CommandBus
    read_models: ReadModels


class _Runs(Protocol):
    def __call__(self, call: Callable[[_Client], Coroutine[Any, Any, T]]) -> T: ...


class SynchronousBus:
    """Sends commands and reads rows in blocking calls, from any number of threads.

    The first call connects. Every call raises `BrokerUnreachable` if there is no broker.

    Args:
        app: the application; nothing of it runs here.
        settings: where its broker is; and its read models, if you read them or wait for them.
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._client: _Client | None = None
        self._starting = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        """Connects."""
        self._connected()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    def execute(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        items: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        wait_for: WaitFor = EXECUTED,
        deadline: datetime | timedelta | None = None,
        principal: Principal | None = None,
    ) -> CommandResult:
        """Sends a command and returns its result; arguments and errors are those of `CommandBus.execute`."""
        result = self._run(
            lambda client: client.bus.execute(
                command,
                command_id=command_id,
                items=items,
                timeout_ms=timeout_ms,
                wait_for=wait_for,
                deadline=deadline,
                principal=principal,
            )
        )
        if isinstance(result, WatchedResult):  # in debug mode: names the line of this call
            return WatchedResult.of(result, command.message_name, depth=2)
        return result

    def send(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        correlation_id: str | None = None,
        items: Mapping[str, str] | None = None,
        deadline: datetime | timedelta | None = None,
        principal: Principal | None = None,
    ) -> str:
        """Sends a command and returns its id once it is durable; see `CommandBus.send`."""
        return self._run(
            lambda client: client.bus.send(
                command,
                command_id=command_id,
                correlation_id=correlation_id,
                items=items,
                deadline=deadline,
                principal=principal,
            )
        )

    def read(self, projection: Projection[R]) -> "SynchronousReader[R]":
        """Returns a reader of a projection's live table."""
        return SynchronousReader(self._run, projection)

    def close(self) -> None:
        """Disconnects; calls under way end with `CommandTimeout`. No call is possible afterwards."""
        with self._starting:
            self._closed = True
            client, self._client = self._client, None
        if client is not None and client.process == os.getpid():
            client.loop.call_soon_threadsafe(client.ended.set)
            client.thread.join()

    def _run(self, call: Callable[[_Client], Coroutine[Any, Any, T]]) -> T:
        client = self._connected()
        if threading.current_thread() is client.thread:
            raise HeadraceError("a call in the bus's own thread would wait for itself for ever")
        future = asyncio.run_coroutine_threadsafe(call(client), client.loop)
        try:
            return future.result()
        except BaseException:
            # Of the caller, such as KeyboardInterrupt; it does nothing to a call that has ended.
            future.cancel()
            raise

    def _connected(self) -> _Client:
        client = self._client
        if client is not None and client.process == os.getpid():
            return client
        with self._starting:
            if self._closed:
                raise HeadraceError("the bus is closed; make another one")
            if self._client is None or self._client.process != os.getpid():
                self._client = self._start()
            return self._client

    def _start(self) -> _Client:
        opened: Future[_Client] = Future()
        # A daemon: a program that ends without `close` is not kept from ending.
        thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(opened)), name="headrace bus", daemon=True
        )
        thread.start()
        return opened.result()

    async def _serve(self, opened: "Future[_Client]") -> None:
        """Keeps the connections until `close`; runs in the thread."""
        try:
            async with self._app.client(self._settings) as bus:
                read_models, ended = ReadModels(self._settings.read_models), asyncio.Event()
                thread, loop = threading.current_thread(), asyncio.get_running_loop()
                client = _Client(os.getpid(), thread, loop, ended, bus, read_models)
                opened.set_result(client)
                await ended.wait()
                await read_models.aclose()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)


class SynchronousReader(Generic[R]):
    """Reads one projection; arguments and errors are those of `ProjectionReader`.

    Args:
        run: runs a call in the bus's thread.
        projection: what to read.
    """

    def __init__(self, run: _Runs, projection: Projection[R]) -> None:
        self._run = run
        self._projection = projection

    def get(self, key: str) -> R | None:
        """Returns the row of a key, or None."""
        return self._run(lambda client: self._reader(client).get(key))

    def where(self, **conditions: Any) -> list[R]:
        """Returns the rows that meet all conditions, in key order; 10,000 at most."""
        return self._run(lambda client: self._reader(client).where(**conditions))

    def page(
        self,
        conditions: Mapping[str, Any] | None = None,
        *,
        order_by: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[R]:
        """Returns the next rows that meet all conditions."""
        return self._run(
            lambda client: self._reader(client).page(
                conditions or {}, order_by=order_by, limit=limit, after=after
            )
        )

    def count(self, **conditions: Any) -> int:
        """Returns how many rows meet all conditions."""
        return self._run(lambda client: self._reader(client).count(**conditions))

    def _reader(self, client: _Client) -> ProjectionReader[R]:
        return client.read_models.reader(self._projection)
