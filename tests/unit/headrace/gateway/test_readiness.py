"""Readiness: which part is not there, asked seldom and never for long."""

import asyncio

from headrace.errors import SchemaOutOfDate
from headrace.gateway.readiness import Readiness
from headrace.gateway.settings import GatewaySettings
from headrace.testing.history import FakeClock


async def there() -> None:
    pass


async def never() -> None:
    await asyncio.Event().wait()


async def behind() -> None:
    raise SchemaOutOfDate("run: headrace db upgrade")


async def refused() -> None:
    raise ConnectionRefusedError("password=1")


async def test_parts_that_are_not_there_are_named_with_a_sentence() -> None:
    checks = {"a": there, "slow": never, "schema": behind, "broker": refused}
    readiness = Readiness(checks, GatewaySettings(check_ms=1))
    assert readiness.parts == ("a", "slow", "schema", "broker")
    assert await readiness.missing() == {
        "slow": "no answer within 1 ms",
        "schema": "run: headrace db upgrade",
        "broker": "ConnectionRefusedError",
    }


async def test_an_answer_is_given_again_until_it_is_too_old() -> None:
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1

    clock = FakeClock()
    readiness = Readiness({"part": look}, GatewaySettings(ready_cache_ms=100), clock)
    await asyncio.gather(*(readiness.missing() for _ in range(5)))
    assert looks == 1
    clock.advance(100)
    await readiness.missing()
    assert looks == 2


async def test_one_part_can_be_asked_for_alone() -> None:
    readiness = Readiness({"broker": refused, "a": there}, GatewaySettings())
    assert [await readiness.away(part) for part in ("broker", "a", "unknown")] == [
        True,
        False,
        False,
    ]
