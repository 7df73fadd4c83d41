"""
What the clients of a cluster are given, and where what they say goes.

Used by the modules of the transport. It must not know topics.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace._runtime.log import get_logger
from headrace.errors import DefinitionError
from headrace.transports.kafka.address import KafkaAddress

__all__ = [
    "REQUEST_S",
    "SEND_MS",
    "client_config",
    "make_client",
    "producing_config",
    "reading",
    "reading_config",
]

T = TypeVar("T")

_log = get_logger(__name__)

# How long one request to the cluster may take.
REQUEST_S: Final = 10.0
# How long all attempts together to send one message may take, as on the built-in queue.
SEND_MS: Final = 30_000
_SAID_BY_LIBRDKAFKA: Final = logging.getLogger("headrace.kafka")


def client_config(address: KafkaAddress, name: str) -> dict[str, Any]:
    """Returns the part of a configuration that every client has.

    Args:
        address: of the cluster.
        name: of the client.
    """
    return {
        **address.client,
        "bootstrap.servers": address.bootstrap,
        "client.id": name,
        "error_cb": _say,
        "logger": _SAID_BY_LIBRDKAFKA,
        # A broker that was restarted is found again at once.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
    }


def reading_config(address: KafkaAddress, name: str) -> dict[str, Any]:
    """Returns the configuration of a consumer that is in no group."""
    return {
        **client_config(address, name),
        "group.id": f"headrace.reader.{name}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
        "fetch.error.backoff.ms": 50,
        "allow.auto.create.topics": False,
    }


def producing_config(address: KafkaAddress, name: str) -> dict[str, Any]:
    """Returns the configuration of a producer: idempotent, acknowledged by all in-sync replicas."""
    return {
        **client_config(address, name),
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": SEND_MS,
        "queue.buffering.max.kbytes": 65_536,
    }


def make_client(kind: Callable[[dict[str, Any]], T], config: Mapping[str, Any]) -> T:
    """Makes a client of a kind.

    Raises:
        DefinitionError: the address has an option that the client does not take.
    """
    try:
        return kind(dict(config))
    except KafkaException as error:
        raise DefinitionError(f"broker: {error.args[0].str()}") from error


@contextmanager
def reading(address: KafkaAddress, name: str, **choices: Any) -> Iterator[Consumer]:
    """Opens a consumer that joins no group: it asks, or reads what it is assigned by hand.

    Args:
        address: of the cluster.
        name: of the client.
        choices: of its configuration, besides `reading_config`'s.

    Raises:
        DefinitionError: as `make_client`.
    """
    consumer = make_client(Consumer, {**reading_config(address, name), **choices})
    try:
        yield consumer
    finally:
        consumer.close()


def _say(error: KafkaError) -> None:
    # All of it passes, or comes with what fails by it.
    _log.debug("Kafka", code=error.name(), error=error.str())
