"""
The topics of an application at Kafka: made, checked, and what they hold.

Used by the transport; asks the cluster, each time in a thread. A `Topics` of one's own stands for clusters
in which topics are made by others.
"""

from collections.abc import Mapping
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not said to be
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace._runtime.log import get_logger
from headrace.errors import DefinitionError, HeadraceError
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import REQUEST_S, client_config, make_client
from headrace.transports.kafka.failures import failure

__all__ = ["ClusterTopics", "TopicFacts", "Topics"]

_log = get_logger(__name__)

_REPLICAS_WANTED: Final = 3
# Kafka keeps messages for milliseconds; -1 is for ever.
_HOUR_MS: Final = 3_600_000
_FOREVER: Final = "-1"
# For how long brokers may say that there is no topic until it is believed, and how often they are asked.
_SURE_S: Final = 2.0
_PAUSE_S: Final = 0.2


class TopicFacts(NamedTuple):
    """What a cluster tells of a topic: its partitions, and the UUID it got when it was made."""

    partitions: int
    identity: str


class Topics(Protocol):
    """Makes topics and tells of them; each call blocks."""

    def ensure(self, topic: str, *, queues: int, forever: bool) -> TopicFacts:
        """Makes a topic unless it exists.

        Raises:
            DefinitionError: it has fewer partitions.
            HeadraceError: it is kept for ever and should not be, or the other way round.
            TimeoutError: the cluster is away.
        """
        ...

    def facts(self, topic: str) -> TopicFacts | None:
        """Returns what there is of a topic; None: there is none."""
        ...

    def brokers(self, within_s: float) -> int:
        """Returns how many brokers answer; raises TimeoutError where none does in time."""
        ...


class ClusterTopics:
    """The topics of a real cluster.

    Args:
        address: of the cluster.
        name: of this client.
    """

    def __init__(self, address: KafkaAddress, name: str) -> None:
        self._address = address
        self._config = client_config(address, name)
        self._client: AdminClient | None = None
        self._lock = Lock()

    def ensure(self, topic: str, *, queues: int, forever: bool) -> TopicFacts:
        """Makes a topic unless it exists; see `Topics`."""
        found = self._told(topic)
        if found is None:
            self._make(topic, queues, forever=forever)
            found = self.facts(topic) or TopicFacts(queues, "")
        self._check(topic, found, queues, forever=forever)
        return found

    def facts(self, topic: str) -> TopicFacts | None:
        """Returns what there is of a topic; None: there is none.

        A broker that has just started may not know of it yet, and is asked again.
        """
        end = monotonic() + _SURE_S
        while (found := self._told(topic)) is None and monotonic() < end:
            sleep(_PAUSE_S)
        return found

    def _told(self, topic: str) -> TopicFacts | None:
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_S)[
            topic
        ]
        try:
            described: Any = asked.result()
        except KafkaException as error:
            if error.args[0].code() in {
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
            }:
                return None
            raise failure(error, f"topic {topic}") from error
        return TopicFacts(len(described.partitions), str(described.topic_id))

    def brokers(self, within_s: float = REQUEST_S) -> int:
        """Returns how many brokers answer; raises TimeoutError where none does in time."""
        try:
            return len(self._admin.list_topics(timeout=within_s).brokers)
        except KafkaException as error:
            raise failure(error, f"cluster {self._address}") from error

    def _make(self, topic: str, queues: int, *, forever: bool) -> None:
        address = self._address
        copies = address.replication or min(_REPLICAS_WANTED, self.brokers())
        insync = address.min_insync or max(copies - 1, 1)
        kept_ms = _FOREVER if forever else str(address.transient_hours * _HOUR_MS)
        config = {
            "cleanup.policy": "delete",
            "retention.ms": kept_ms,
            "retention.bytes": "-1",
            "min.insync.replicas": str(insync),
            # When the broker stored it: clocks of producers differ.
            "message.timestamp.type": "LogAppendTime",
            # An unclean leader would have lost acknowledged messages.
            "unclean.leader.election.enable": "false",
        }
        if address.flush_messages:
            config["flush.messages"] = str(address.flush_messages)
        made = self._admin.create_topics(
            [NewTopic(topic, num_partitions=queues, replication_factor=copies, config=config)],
            request_timeout=REQUEST_S,
            operation_timeout=REQUEST_S,
        )[topic]
        try:
            made.result()
        except KafkaException as error:
            # Another process was faster.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure(error, f"making topic {topic}") from error
        _log.info("topic made", topic=topic, partitions=queues, replicas=copies, in_sync_min=insync)

    def _check(self, topic: str, found: TopicFacts, queues: int, *, forever: bool) -> None:
        if found.partitions < queues:
            raise DefinitionError(
                f"topic {topic!r} has {found.partitions} partitions and the settings want {queues};"
                f" set the queues to {found.partitions}, because more partitions would move keys"
                " from one to another and break their order"
            )
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=REQUEST_S)[resource]
        try:
            config: Mapping[str, Any] = asked.result()
        except KafkaException as error:
            _log.warning(
                "the topic's configuration cannot be read: allow the user DESCRIBE_CONFIGS",
                topic=topic,
                error=error.args[0].str(),
            )
            return
        kept = config["retention.ms"].value
        if (kept == _FOREVER) != forever:
            wanted = "for ever (retention.ms=-1)" if forever else "for a time (retention.ms)"
            raise HeadraceError(
                f"topic {topic!r} exists and has retention.ms={kept}; it must be kept {wanted}: set that"
                " with kafka-configs, or use another name"
            )
        if "compact" in config["cleanup.policy"].value:
            raise HeadraceError(
                f"topic {topic!r} is compacted, which loses events; set cleanup.policy=delete"
            )
        if config["min.insync.replicas"].value == "1":
            _log.warning(
                "one broker alone may acknowledge messages, and they are lost with it: set"
                " min.insync.replicas=2 and three replicas",
                topic=topic,
            )

    @property
    def _admin(self) -> AdminClient:
        with self._lock:
            if self._client is None:
                self._client = make_client(AdminClient, self._config)
            return self._client
