"""Resources: found by type, opened in order, closed in reverse, each within its time."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.errors import DefinitionError, ResourceFailed
from headrace.resources.resources import Resources
from headrace.settings import Settings


class Mailer:
    """A client of some kind."""


class Prices:
    """A value."""


async def plain(event: str, context: str) -> None: ...


async def mailing(event: str, context: str, mailer: Mailer) -> Mailer:
    return mailer


def logged(resources: Resources, log: list[str], name: str, kind: Any) -> None:
    """Adds a resource that notes when it opens and closes."""

    async def opener() -> AsyncIterator[Any]:
        log.append(f"{name} opens")
        yield name
        log.append(f"{name} closes")

    opener.__qualname__ = name
    opener.__annotations__["return"] = AsyncIterator[kind]
    resources.add(opener)


def opening(resources: Resources, **settings: Any) -> Any:
    return resources.opening(Settings(**settings), {})


async def test_resources_open_in_order_and_close_in_reverse() -> None:
    resources, log = Resources([]), list[str]()
    logged(resources, log, "first", Mailer)
    logged(resources, log, "second", None)
    async with opening(resources) as found:
        await found.open()
        await found.open()  # only once
        assert found.bind(mailing).keywords == {"mailer": "first"}
        log.append("work")
    assert log == ["first opens", "second opens", "work", "second closes", "first closes"]


async def test_a_resource_gets_what_was_registered_before_it() -> None:
    resources = Resources([Settings])
    resources.provide(Prices, "prices")

    @resources.add
    async def mails(settings: Settings, prices: Prices) -> AsyncIterator[Mailer]:
        yield settings, prices

    given = Settings(name="me")
    async with resources.opening(given, {Settings: given}) as found:
        await found.open()
        assert found.bind(mailing).keywords == {"mailer": (given, "prices")}


def test_a_resource_that_needs_what_comes_later_is_refused() -> None:
    async def mails(prices: Prices) -> AsyncIterator[Mailer]:
        yield Mailer()

    with pytest.raises(DefinitionError, match="prices: Prices; register first what it needs"):
        Resources([]).add(mails)


async def not_a_generator() -> AsyncIterator[Mailer]:
    raise NotImplementedError


async def without_type():
    yield 1


@pytest.mark.parametrize("function", [not_a_generator, without_type])
def test_another_form_of_a_resource_is_refused(function: Any) -> None:
    with pytest.raises(DefinitionError, match=r"write it as `async def f\(\) -> AsyncIterator"):
        Resources([]).add(function)


@pytest.mark.parametrize("kind", [Mailer, Settings])
def test_a_type_has_one_provider(kind: type) -> None:
    resources = Resources([Settings])
    resources.provide(Mailer, Mailer())
    with pytest.raises(DefinitionError, match="is provided"):
        logged(resources, [], "again", kind)
    with pytest.raises(DefinitionError, match="is provided"):
        resources.provide(kind, None)


async def test_one_that_fails_to_open_says_so_and_the_others_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resources, log = Resources([]), list[str]()
    logged(resources, log, "first", Mailer)

    @resources.add
    async def broken() -> AsyncIterator[None]:
        raise OSError("no route")
        yield

    with pytest.raises(ResourceFailed, match=r"broken did not open: OSError: no route$"):
        async with opening(resources) as found:
            await found.open()
    assert log == ["first opens", "first closes"]
    assert "Traceback" in caplog.text
    assert "OSError: no route" in caplog.text


@pytest.mark.parametrize("step", ["open", "close"])
async def test_a_step_that_takes_too_long_is_ended(step: str) -> None:
    resources, log = Resources([]), list[str]()
    logged(resources, log, "first", Mailer)

    @resources.add
    async def slow() -> AsyncIterator[None]:
        if step == "open":
            await asyncio.Event().wait()
        yield
        await asyncio.Event().wait()

    limit = {f"resource_{step}_ms": 1}
    with pytest.raises(ResourceFailed, match=rf"did not {step}: .* 1 ms \(resource_{step}_ms\)"):
        async with opening(resources, **limit) as found:
            await found.open()
    assert log[-1] == "first closes"


async def test_an_error_of_the_run_is_not_covered_by_one_of_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resources = Resources([])

    @resources.add
    async def broken() -> AsyncIterator[None]:
        yield
        raise OSError("already gone")

    async def run() -> None:
        async with opening(resources) as found:
            await found.open()
            raise ZeroDivisionError

    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        await run()
    assert "already gone" in caplog.text


async def test_an_overridden_resource_is_not_opened() -> None:
    resources, log = Resources([]), list[str]()
    logged(resources, log, "real", Mailer)
    with resources.overridden({Mailer: "fake"}):
        async with opening(resources) as found:
            await found.open()
            assert found.bind(mailing).keywords == {"mailer": "fake"}
        assert resources.bind_now(mailing).keywords == {"mailer": "fake"}
    assert log == []
    with pytest.raises(DefinitionError, match=r"needs Mailer.*app\.overrides\(\{Mailer: …\}\)"):
        resources.bind_now(mailing)("event", "context")


def test_what_nothing_provides_is_said_before_anything_opens() -> None:
    resources = Resources([Settings])
    resources.check([plain])
    with pytest.raises(DefinitionError, match="nothing provides its parameter mailer"):
        resources.check([plain, mailing])
    with pytest.raises(DefinitionError, match="nothing provides its parameter mailer"):
        resources.bind_now(mailing)
