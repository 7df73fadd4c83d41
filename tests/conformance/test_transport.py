"""The transport in this process, the one over a broker, and what is put around them keep the port's promises."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

import pytest
from opentelemetry.sdk.trace import TracerProvider

from headrace.events.sealed_transport import seal_events
from headrace.lineage.marked_transport import MarkedTransport
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.streams import conformance_serializer
from headrace.testing.conformance.transport import DurableTransportConformance, TransportConformance
from headrace.testing.kafka import MockKafka
from headrace.tracing.spans import Spans
from headrace.tracing.transport import TracedTransport
from headrace.transports.base import Incoming, Transport
from headrace.transports.kafka.schedule import MemorySchedule
from headrace.transports.kafka.transport import KafkaTransport
from headrace.transports.local import LocalTransport
from headrace.transports.queue import QueueTransport
from headrace_mq.errors import MessageQueueError
from headrace_mq.testing.conformance.deployment import QUICK, ProcessDeployment


class Everybody(dict[str, str]):
    """Takes every group for a reader of events."""

    def get(self, _group: str, _default: object = None) -> str:  # type: ignore[override]  # always one
        return "reader"


async def wrapped(transport: Transport) -> Transport:
    """Puts around it all that a running application does."""

    async def enter() -> None: ...

    async def damaged(_markers: Sequence[Incoming]) -> None: ...

    sealed, _ = await seal_events(transport, "app", MemoryEventStore(), conformance_serializer())

    async def require(*_of: object) -> None: ...

    marked = MarkedTransport(sealed, Everybody(any="reader"), enter, damaged, require)  # type: ignore[arg-type]  # as much of one as is used
    provider = TracerProvider(shutdown_on_exit=False)
    return TracedTransport(marked, Spans(provider))  # type: ignore[arg-type,return-value]  # all else by `__getattr__`


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    deployment = ProcessDeployment(tmp_path_factory.mktemp("mq"))
    deployment.start()
    yield deployment
    deployment.close()


async def connected(deployment: ProcessDeployment) -> QueueTransport:
    transport = QueueTransport(deployment.address, consumer=QUICK)
    await transport.start()
    return transport


class TestLocalTransport(TransportConformance):
    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        transport = LocalTransport()
        yield transport
        await transport.aclose()

    @pytest.fixture
    def twin(self, transport: Transport) -> Transport:
        return transport


class TestWrappedLocalTransport(TestLocalTransport):
    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        transport = LocalTransport()
        yield await wrapped(transport)
        await transport.aclose()


class TestQueueTransport(TransportConformance):
    @pytest.fixture
    async def transport(self, deployment: ProcessDeployment) -> AsyncIterator[Transport]:
        transport = await connected(deployment)
        yield transport
        await transport.aclose()

    @pytest.fixture
    async def twin(self, deployment: ProcessDeployment) -> AsyncIterator[Transport]:
        twin = await connected(deployment)
        yield twin
        await twin.aclose()


class TestWrappedQueueTransport(TestQueueTransport):
    @pytest.fixture
    async def transport(self, deployment: ProcessDeployment) -> AsyncIterator[Transport]:
        transport = await connected(deployment)
        yield await wrapped(transport)
        await transport.aclose()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockKafka]:
    with MockKafka(brokers=3) as cluster:
        yield cluster


async def at_kafka(cluster: MockKafka, options: str = "") -> KafkaTransport:
    transport = KafkaTransport(
        cluster.address(options), topics=cluster.topics, schedule=MemorySchedule()
    )
    await transport.start()
    return transport


class TestKafkaTransport(TransportConformance):
    # A mock cluster waits for so long until it has heard of all members.
    OPTIONS = "group.protocol=classic&session.timeout.ms=1500"

    @pytest.fixture
    async def transport(self, cluster: MockKafka) -> AsyncIterator[Transport]:
        transport = await at_kafka(cluster, self.OPTIONS)
        yield transport
        await transport.aclose()

    @pytest.fixture
    async def twin(self, cluster: MockKafka) -> AsyncIterator[Transport]:
        twin = await at_kafka(cluster, self.OPTIONS)
        yield twin
        await twin.aclose()


class TestKafkaTransportByConsumerProtocol(TestKafkaTransport):
    OPTIONS = "group.protocol=consumer"


class TestQueueTransportOverCrashes(DurableTransportConformance):
    @pytest.fixture
    async def transport(self, deployment: ProcessDeployment) -> AsyncIterator[Transport]:
        transport = await connected(deployment)
        yield transport
        with suppress(MessageQueueError):
            await transport.aclose()

    @pytest.fixture
    async def reopen(
        self, deployment: ProcessDeployment, transport: Transport
    ) -> AsyncIterator[Callable[[], Awaitable[Transport]]]:
        opened = []

        async def reopen() -> Transport:
            await deployment.crash()
            opened.append(await connected(deployment))
            return opened[-1]

        yield reopen
        for each in opened:
            await each.aclose()
