"""
What handlers get besides a message and its context: clients, pools, settings, found by their types.

    @app.resource                                      opened before the first message, closed after
    async def mails() -> AsyncIterator[Mailer]:        the last one
        async with Mailer() as mailer:
            yield mailer

    @app.on_event
    async def welcome(event: Registered, context: EventContext, mailer: Mailer) -> None: ...

Parameters are resolved once, when an application starts, so a message costs no more than without them.

Used by `App`, which opens resources, and by the parts that bind handlers to them.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial, update_wrapper
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from headrace._runtime.log import get_logger
from headrace.errors import DefinitionError, ResourceFailed
from headrace.resources.parameters import bound_to, name_of, shown, wanted_by
from headrace.settings import Settings

__all__ = ["OpenResources", "Resources"]

log = get_logger(__name__)

H = TypeVar("H", bound=Callable[..., Any])
Opener = TypeVar("Opener", bound=Callable[..., AsyncIterator[Any]])


@dataclass(frozen=True, slots=True)
class _Resource:
    """A function that opens something, yields it, and closes it.

    Attributes:
        open: the function, as one that returns a context manager.
        name: what it is called.
        kind: the type of what it yields; None: it yields nothing.
        wants: its own parameters, with their types.
    """

    open: Callable[..., AbstractAsyncContextManager[Any]]
    name: str
    kind: Any
    wants: Mapping[str, Any]


class Resources:
    """What an application provides to its handlers: the definitions, nothing is open.

    Args:
        always: types that are there without a definition, such as `Settings`.
    """

    def __init__(self, always: Iterable[type]) -> None:
        self._always = tuple(always)
        self._resources: list[_Resource] = []
        self._values: dict[Any, Any] = {}
        self._overrides: list[Mapping[Any, Any]] = []

    def add(self, function: Opener) -> Opener:
        """Adds what opens and closes something; see `App.resource`.

        Raises:
            DefinitionError: it is no async generator with a type, the type has a provider already, or a
                parameter is of a type that nothing provides so far.
        """
        name = name_of(function)
        kind = _yielded_by(function)
        wants = wanted_by(function, after=0)
        if kind is not NoneType:
            self._refuse_second(kind, name)
        for parameter, wanted in wants.items():
            if wanted not in self.types:
                raise DefinitionError(
                    f"resource {name}: nothing provides its parameter {parameter}: {shown(wanted)};"
                    " register first what it needs"
                )
        opening = asynccontextmanager(function)
        self._resources.append(_Resource(opening, name, None if kind is NoneType else kind, wants))
        return function

    def provide(self, kind: Any, value: Any) -> None:
        """Provides a value that needs no opening; see `App.provide`.

        Raises:
            DefinitionError: the type has a provider already.
        """
        self._refuse_second(kind, shown(kind))
        self._values[kind] = value

    @contextmanager
    def overridden(self, values: Mapping[Any, Any]) -> Iterator[None]:
        """Provides these values until the block ends, in place of those that are registered."""
        self._overrides.append(dict(values))
        try:
            yield
        finally:
            self._overrides.pop()

    @property
    def types(self) -> frozenset[Any]:
        """The types that are provided."""
        opened = (each.kind for each in self._resources if each.kind is not None)
        return frozenset([*self._always, *opened, *self._ready])

    def bind_now(self, handler: H) -> H:
        """Returns a handler with what is there although nothing is open: values and overrides.

        If that does not suffice, the returned function raises DefinitionError when it is called.

        Raises:
            DefinitionError: nothing provides a type.
        """
        wants = wanted_by(handler)
        if not wants:
            return handler
        bound_to(handler, dict.fromkeys(self.types))
        ready = self._ready
        missing = [kind for kind in wants.values() if kind not in ready]
        if missing:
            return _not_open(handler, missing[0])
        return bound_to(handler, ready)

    def check(self, handlers: Iterable[Callable[..., Any]]) -> None:
        """Raises DefinitionError for the first handler that wants a type that nothing provides."""
        for handler in handlers:
            bound_to(handler, dict.fromkeys(self.types))

    def opening(self, settings: Settings, always: Mapping[type, Any]) -> "OpenResources":
        """Returns the resources for one run, not open yet.

        Args:
            settings: how long opening and closing may take.
            always: values of the types that are there without a definition.
        """
        ready = {**always, **self._ready}
        wanted = [each for each in self._resources if each.kind not in self._overridden]
        return OpenResources(wanted, ready, settings)

    @property
    def _overridden(self) -> Mapping[Any, Any]:
        return {kind: value for each in self._overrides for kind, value in each.items()}

    @property
    def _ready(self) -> Mapping[Any, Any]:
        return {**self._values, **self._overridden}

    def _refuse_second(self, kind: Any, name: str) -> None:
        if kind in self._values or any(kind == each.kind for each in self._resources):
            raise DefinitionError(f"{name}: {shown(kind)} is provided already; remove one")
        if kind in self._always:
            raise DefinitionError(f"{name}: {shown(kind)} is provided by Headrace itself")


class OpenResources:
    """The resources of one run: opened once, in their order, and closed in the reverse of it.

    Made by `Resources.opening`. As a context manager it closes at the end of the block.
    """

    def __init__(
        self, resources: Iterable[_Resource], ready: Mapping[Any, Any], settings: Settings
    ) -> None:
        self._resources = tuple(resources)
        self._found = dict(ready)
        self._settings = settings
        self._open: list[tuple[str, AbstractAsyncContextManager[Any]]] = []
        self._is_open = False

    async def open(self) -> None:
        """Opens everything; does nothing if that was done before.

        Raises:
            ResourceFailed: one did not open, or not within `resource_open_ms`; others are closed
                at the end of the block.
        """
        if self._is_open:
            return
        for each in self._resources:
            arguments = {name: self._found[kind] for name, kind in each.wants.items()}
            manager = each.open(**arguments)
            value = await _in_time(
                manager.__aenter__, each.name, "open", self._settings.resource_open_ms
            )
            self._open.append((each.name, manager))
            if each.kind is not None:
                self._found[each.kind] = value
        self._is_open = True

    def bind(self, handler: H) -> H:
        """Returns a handler with its further parameters; raises DefinitionError as `bound_to`."""
        return bound_to(handler, self._found)

    async def aclose(self) -> list[ResourceFailed]:
        """Closes what is open, the last one first; returns what went wrong, which is in the log."""
        failed: list[ResourceFailed] = []
        while self._open:
            name, manager = self._open.pop()
            close = partial(manager.__aexit__, None, None, None)
            try:
                await _in_time(close, name, "close", self._settings.resource_close_ms)
            except ResourceFailed as error:
                failed.append(error)
        self._is_open = False
        return failed

    async def __aenter__(self) -> "OpenResources":
        return self

    async def __aexit__(self, kind: object, error: object, place: object) -> None:
        failed = await self.aclose()
        # The error of the block says more.
        if failed and error is None:
            raise failed[0]


async def _in_time(step: Callable[[], Any], name: str, what: str, limit_ms: int) -> Any:
    limit = asyncio.timeout(limit_ms / 1_000)
    try:
        async with limit:
            return await step()
    except Exception as error:
        if limit.expired():
            why = f"it takes more than {limit_ms} ms (resource_{what}_ms)"
        else:
            why = f"{type(error).__name__}: {error}"
        log.exception("a resource failed", resource=name, at=what)
        raise ResourceFailed(f"resource {name} did not {what}: {why}") from error


def _yielded_by(function: Callable[..., Any]) -> Any:
    wanted = (
        f"resource {name_of(function)}: write it as `async def f() -> AsyncIterator[SomeType]` with one"
        " `yield`; AsyncIterator[None] if no handler needs the value"
    )
    if not inspect.isasyncgenfunction(function):
        raise DefinitionError(wanted)
    returned = get_type_hints(function).get("return")
    if get_origin(returned) not in {AsyncIterator, AsyncGenerator}:
        raise DefinitionError(wanted)
    return get_args(returned)[0]


def _not_open(handler: H, missing: Any) -> H:
    def unresolved(*_: Any) -> Any:
        raise DefinitionError(
            f"{name_of(handler)} needs {shown(missing)}, and nothing is open here: give it one by"
            f" `with app.overrides({{{shown(missing)}: …}})`"
        )

    return cast("H", update_wrapper(unresolved, handler))
