"""A shop that ran over a broker: an order that went all its way, others that were refused or parked, and one that waits."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from headrace.errors import NotYetHandled
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient
from headrace_mq.access.heads import HEAD_HEADER, MessageHead
from headrace_mq.message import Record
from headrace_mq.testing.embedded import broker
from tests.unit.headrace.journey.shop import Bill, Order, shop


@pytest.fixture
async def admin() -> AsyncIterator[AdminClient]:
    """A connection to an empty broker."""
    async with broker() as address, AdminClient(address) as admin:
        yield admin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """The shop has handled what was sent, and has stopped; another order came afterwards."""
    folder = tmp_path_factory.mktemp("shop")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    async with broker() as address:
        settings = Settings(broker=address, error_retries_max=0, **urls)
        async with shop.run(settings) as running:
            bus = running.bus
            await bus.execute(
                Order(order="ann", item="cup"), command_id="c-ann", wait_for="handled"
            )
            await bus.execute(Order(order="bob", item="tea"), command_id="c-bob")
            await bus.execute(Order(order="cid", item="broken"), command_id="c-cid")
            with pytest.raises(NotYetHandled):
                await bus.execute(
                    Order(order="dora", item="poison"), command_id="c-dora", wait_for="handled"
                )
            await bus.execute(Bill(bill="none"), command_id="c-none")
        async with shop.client(settings) as bus:
            await bus.send(Order(order="fay", item="pan"), command_id="c-fay")
        async with AdminClient(address) as admin:
            yield SimpleNamespace(admin=admin, address=address, settings=settings, urls=urls)


def head(one: Record) -> MessageHead:
    """What a broker shows of a message to those who may not consume its topic."""
    told = {HEAD_HEADER: str(len(one.body))}
    return MessageHead(one.queue, one.offset, one.key, one.tag, told, b"", one.born_at_ms, one.stored_at_ms)  # fmt: skip


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may not consume: a search of a key finds heads."""
    find = AdminClient.find

    async def heads(*given: Any, **more: Any) -> list[Record]:
        return [head(one) for one in await find(*given, **more)]

    monkeypatch.setattr(AdminClient, "find", heads)
