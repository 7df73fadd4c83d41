"""`headrace events republish`: what it needs, and what it says; its work is tested over real files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.cli.application.republish import _delete, republish
from headrace.errors import SchemaOutOfDate
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import TopicNotFound
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        republish(app_path="samples.bank:app", event_store=url)
    assert list(tmp_path.iterdir()) == []


async def test_a_topic_that_is_not_there_need_not_go(broker: Broker) -> None:
    await _delete(broker.address, "bank.events")


async def test_an_idle_topic_goes_whatever_groups_have_left_there(broker: Broker) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("bank.events", 1, "forever")
        await admin.create_topic("bank.commands", 1)
        await admin.reset_offsets("g", "earliest", topics=["bank.events", "bank.commands"])
        await _delete(broker.address, "bank.events")
        with pytest.raises(TopicNotFound):
            await admin.topic("bank.events")
        assert (await admin.topic("bank.commands")).unwritable == []
