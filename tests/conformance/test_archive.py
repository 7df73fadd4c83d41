"""A broker keeps the queue's promises when its log is a moment long and PostgreSQL has the rest."""

from collections.abc import AsyncIterator, Collection

import pytest

from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq.broker.server import Broker
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.testing.conformance.deployment import Deployment, EmbeddedDeployment
from headrace_mq.testing.conformance.queue import QueueConformance
from headrace_mq.testing.embedded import DIRECTORY

SEGMENT_BYTES = 64 << 10
# No segment has room for it, so that one more begins.
FILLING = bytes(SEGMENT_BYTES)
# What producers sent to segments that are gone is forgotten by a restart, archived or not: the one
# promise that holds for as long as the log does.
SPARED = ("filling-", "once-")


class ArchivedDeployment(EmbeddedDeployment):
    """Whatever becomes visible is followed by so much that its segment is sealed, and goes."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._archive = ArchiveSettings(url=url, window_bytes=1, interval_ms=5)

    async def start(self) -> None:
        files = self._disk.mount()
        store = StoreSettings(
            directory=DIRECTORY, segment_bytes=SEGMENT_BYTES, retention_interval_ms=10
        )
        broker = Broker(
            BrokerSettings(store=store, port=0, archive=self._archive),
            clock=self.clock,
            disk=self._disk,
            files=files,
        )
        await broker.start()
        assert broker._state is not None
        fill_behind(broker._state.store)
        self._running = broker, files


def fill_behind(store: MessageStore) -> None:
    """Appends a filling to the log of whatever becomes visible."""
    told = store.on_visible
    assert told is not None

    def visible(queues: Collection[QueueRef]) -> None:
        told(queues)
        kept = dict(store.queues())
        for retention in {kept[queue] for queue in queues if not queue.topic.startswith(SPARED)}:
            queue = QueueRef(f"filling-{retention}", 0)
            batch = encode_batch(queue, Columns([], [], [], [FILLING], []), born_first_ms=1)
            if store.read_only is None and not store._closed:
                store.append(batch, retention=retention)

    store.on_visible = visible


class TestArchivedBroker(QueueConformance):
    @pytest.fixture
    async def deployment(self, postgres_database: str) -> AsyncIterator[Deployment]:
        await upgrade(postgres_database, tree=ARCHIVE)
        deployment = ArchivedDeployment(postgres_database)
        await deployment.start()
        yield deployment
        await deployment.aclose()
