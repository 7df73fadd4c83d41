"""A broker keeps the queue's promises when its log is a moment long and PostgreSQL has the rest."""

from collections.abc import AsyncIterator, Collection

import pytest

from headrace.stores.schema import ARCHIVE, upgrade
from headrace_mq.archive.archived_store import OWN_TOPICS
from headrace_mq.broker.server import Broker
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings
from headrace_mq.store.batch_reader import Batch
from headrace_mq.store.message_store import MessageStore
from headrace_mq.testing.conformance.deployment import Deployment, EmbeddedDeployment
from headrace_mq.testing.conformance.queue import QueueConformance
from headrace_mq.testing.embedded import DIRECTORY

SEGMENT_BYTES = 64 << 10
# No segment has room for it, so that one more begins.
FILLING = bytes(SEGMENT_BYTES)


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
        read_from_archive_alone(broker._state.store)
        self._running = broker, files


def read_from_archive_alone(store: MessageStore) -> None:
    """Lets readers have nothing from the log: they wait until it has gone to the archive."""
    told, read_now, delete = store.on_visible, store.read_now, store.delete_segments
    assert told is not None
    waiting: set[QueueRef] = set()

    def visible(queues: Collection[QueueRef]) -> None:
        told(queues)
        kept = dict(store.queues())
        for retention in {kept[queue] for queue in queues if not queue.topic.startswith("filling")}:
            queue = QueueRef(f"filling-{retention}", 0)
            batch = encode_batch(queue, Columns([], [], [], [FILLING], []), born_first_ms=1)
            if store.read_only is None and not store._closed:
                store.append(batch, retention=retention)

    def read(queue: QueueRef, offset: int, bytes_max: int) -> list[Batch] | None:
        held = MessageStore.range(store, queue)[0]
        if queue.topic not in OWN_TOPICS and offset >= held:
            waiting.add(queue)
            return None
        return read_now(queue, offset, bytes_max)

    def delete_and_tell(log: str, before: int) -> int:
        deleted = delete(log, before)
        if deleted:
            told(sorted(waiting))
            waiting.clear()
        return deleted

    store.on_visible = visible
    store.read_now = read  # type: ignore[method-assign]  # the log is held back on purpose
    store.delete_segments = delete_and_tell  # type: ignore[method-assign]  # the same


class TestArchivedBroker(QueueConformance):
    @pytest.fixture
    async def deployment(self, postgres_database: str) -> AsyncIterator[Deployment]:
        await upgrade(postgres_database, tree=ARCHIVE)
        deployment = ArchivedDeployment(postgres_database)
        await deployment.start()
        yield deployment
        await deployment.aclose()
