"""Verbs as the pages and the API call them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headrace.console.verbs.catalogue import VERBS
from headrace.console.verbs.verb import Consequence, values_of
from headrace_mq import AdminClient
from headrace_mq.testing.embedded import broker


@pytest.fixture
async def admin() -> AsyncIterator[AdminClient]:
    async with broker() as address, AdminClient(address) as admin:
        yield admin


@pytest.fixture
def run(admin: AdminClient) -> Callable[..., Awaitable[Any]]:
    """Runs a verb with fields."""

    async def run(name: str, **fields: Any) -> Any:
        return await VERBS[name].run(admin, values_of(VERBS[name], fields))

    return run


@pytest.fixture
def ahead(admin: AdminClient) -> Callable[..., Awaitable[Consequence]]:
    """Asks what a verb would change."""

    async def ahead(name: str, **fields: Any) -> Consequence:
        look_ahead = VERBS[name].look_ahead
        assert look_ahead is not None
        return await look_ahead(admin, values_of(VERBS[name], fields))

    return ahead
