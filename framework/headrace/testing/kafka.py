"""
A Kafka cluster inside this process, for tests: librdkafka's mock cluster, reached over real sockets.

    with MockKafka() as cluster:
        transport = KafkaTransport(cluster.address(), topics=cluster.topics)

It speaks Kafka's protocol: idempotent production, consumer groups of both protocols, committed offsets. It
keeps messages in memory and makes no topics by request, which `topics` does in its place. It does not vouch
for what a real cluster does when brokers die. Needs the extra `headrace[kafka]`.
"""

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka

from headrace._runtime.ids import new_id
from headrace.errors import DefinitionError, HeadraceError
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.topics import TopicFacts

__all__ = ["MockKafka", "MockTopics"]

_PRODUCER: Final = 0
_ERROR_BYTES: Final = 512
_INITIAL_REBALANCE_MS: Final = 0


class MockTopics:
    """The topics of a mock cluster; the port is `headrace.transports.kafka.topics.Topics`."""

    def __init__(self, cluster: "MockKafka") -> None:
        self._cluster = cluster
        self._made: dict[str, tuple[TopicFacts, bool]] = {}

    def ensure(self, topic: str, *, queues: int, forever: bool) -> TopicFacts:
        """Makes a topic unless it exists.

        Raises:
            DefinitionError: it has fewer partitions.
            HeadraceError: it is kept for ever and should not be, or the other way round.
        """
        if topic not in self._made:
            self._cluster.make_topic(topic, queues)
            self._made[topic] = TopicFacts(queues, new_id()), forever
        facts, kept = self._made[topic]
        if facts.partitions < queues:
            raise DefinitionError(f"topic {topic!r} has {facts.partitions} partitions")
        if kept != forever:
            raise HeadraceError(f"topic {topic!r} exists and is kept otherwise")
        return facts

    def facts(self, topic: str) -> TopicFacts | None:
        """Returns what there is of a topic; None: there is none."""
        found = self._made.get(topic)
        return None if found is None else found[0]

    def brokers(self, within_s: float = 1.0) -> int:  # noqa: ARG002 - the port's
        """Returns how many brokers there are."""
        return self._cluster.count


class MockKafka:
    """A cluster that ends with its block.

    Args:
        brokers: how many.

    Attributes:
        count: of brokers.
        topics: makes its topics.
    """

    def __init__(self, brokers: int = 1) -> None:
        self.count = brokers
        self._library = library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        handle = library.rd_kafka_new(_PRODUCER, None, error, _ERROR_BYTES)
        if not handle:
            raise HeadraceError(f"no mock cluster: {error.value.decode()}")
        self._handle = ctypes.c_void_p(handle)
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._handle, brokers))
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, _INITIAL_REBALANCE_MS)
        library.rd_kafka_mock_set_controller_id(self._cluster, 1)
        self.topics = MockTopics(self)

    def address(self, options: str = "") -> KafkaAddress:
        """Returns its address, with options as they stand behind the question mark."""
        return KafkaAddress.parse(f"{self.text}?{options}")

    @property
    def text(self) -> str:
        """Its address as a setting."""
        found: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return f"kafka://{found.decode()}"

    def make_topic(self, topic: str, partitions: int) -> None:
        """Makes a topic with a copy on each broker."""
        self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, self.count
        )

    def fail_requests(self, api_key: int, codes: list[int]) -> None:
        """Answers the next requests of a kind with these error codes, one each."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), array
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Forgets the messages of a partition before an offset."""
        self._library.rd_kafka_mock_partition_delete_records(
            self._cluster, topic.encode(), partition, ctypes.c_int64(before)
        )

    def set_down(self, broker: int) -> None:
        """Takes a broker, counted from 1, away from the network."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def set_up(self, broker: int) -> None:
        """Brings a broker back, with all it had."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def close(self) -> None:
        """Ends the cluster and its messages."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def __enter__(self) -> "MockKafka":
        """Returns itself."""
        return self

    def __exit__(self, *_of: object) -> None:
        """Ends the cluster."""
        self.close()


def _library() -> ctypes.CDLL:
    """Returns the library that the client has loaded: the same copy, so that it is loaded once."""
    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    if not found:
        raise HeadraceError("the mock cluster needs the client's own librdkafka, of its wheel")
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
