"""
The address of a Kafka cluster: `kafka://h1:9092,h2:9092?option=value&…`.

    of Headrace   replication, min.insync.replicas, flush.messages, transient.hours, replies, …
    of the client every other option goes to librdkafka as it is: security.protocol, sasl.*, ssl.*, …

Used by what opens a transport. Pure, but for secrets that stand in files. What it shows of itself has
no secret in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

__all__ = ["SCHEME", "KafkaAddress", "is_kafka"]

SCHEME: Final = "kafka://"
# Kafka's own, and the largest one that TCP has.
_PORT: Final = 9092
_PORT_MAX: Final = 65_535
# Options whose value may stand in a file, named by the option and `.file`.
_SECRET: Final = (
    "sasl.password",
    "ssl.key.password",
    "sasl.oauthbearer.client.secret",
    "ssl.key.pem",
)
_FROM_FILE: Final = ".file"
# What the guarantees rest on, and what a transport decides itself.
_RESERVED: Final[Mapping[str, str]] = {
    "acks": "every message waits for all in-sync replicas",
    "auto.offset.reset": "a reader begins where the topic begins",
    "bootstrap.servers": "the servers stand before the question mark",
    "client.id": "it is the name of the process",
    "enable.auto.commit": "offsets are committed when messages are done",
    "enable.auto.offset.store": "offsets are committed when messages are done",
    "enable.idempotence": "a message that is sent again must not come twice",
    "group.id": "it is the name of the reader",
    "group.instance.id": "it is the name of the process",
    "partitioner": "the key's CRC-32C chooses the partition, as on the built-in queue",
}
_PROTOCOLS: Final = ("classic", "consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """A cluster, and how to talk to it.

    Attributes:
        servers: `host:port` of some of its brokers.
        replication: copies of each message in topics that are made; 0: three, or as many as there are
            brokers.
        min_insync: copies that must be there before a message is acknowledged, in topics that are made;
            0: all copies but one, and at least one.
        flush_messages: messages after which a broker flushes a topic that is made to its disk; 0: the
            broker decides.
        transient_hours: how long a topic of commands keeps messages.
        replies: the topic for results of commands.
        group_protocol: "classic", which every Kafka knows, or "consumer", of Kafka 4 (KIP-848).
        client: what goes to librdkafka; not shown, it may hold secrets.
    """

    servers: tuple[str, ...]
    replication: int = 0
    min_insync: int = 0
    flush_messages: int = 0
    transient_hours: int = 72
    replies: str = "headrace.replies"
    group_protocol: str = "classic"
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str) -> "KafkaAddress":
        """Reads an address.

        Raises:
            ValueError: it is none; the sentence says what to write, and has no secret in it.
        """
        if not is_kafka(text):
            raise ValueError(f"the address of a Kafka cluster begins with {SCHEME}")
        places, _, query = text.removeprefix(SCHEME).partition("?")
        if "@" in places:
            raise ValueError(
                "the address has a user in it; write kafka://HOST:PORT?sasl.username=USER"
                "&sasl.password.file=FILE"
            )
        if "/" in places.rstrip("/") or not places.rstrip("/"):
            raise ValueError(f"write {SCHEME}HOST:PORT,HOST:PORT, and no path behind it")
        servers = tuple(_server(each) for each in places.rstrip("/").split(","))
        options: dict[str, str] = {}
        for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
            if name in options:
                raise ValueError(f"the option {name} stands twice in the address")
            options[name] = value
        own = {
            "replication": _number(options, "replication", 0, 32_767),
            "min_insync": _number(options, "min.insync.replicas", 0, 32_767),
            "flush_messages": _number(options, "flush.messages", 0, 2**31 - 1),
            "transient_hours": _number(options, "transient.hours", 72, 24 * 366),
        }
        protocol = options.pop("group.protocol", "classic")
        if protocol not in _PROTOCOLS:
            raise ValueError(f"group.protocol is {' or '.join(_PROTOCOLS)}, not {protocol!r}")
        replies = options.pop("replies", "headrace.replies")
        return cls(
            servers=servers,
            replies=replies,
            group_protocol=protocol,
            client=_client(options),
            **own,
        )

    @property
    def bootstrap(self) -> str:
        """The servers as librdkafka takes them."""
        return ",".join(self.servers)

    def __str__(self) -> str:
        """The address without its options."""
        return f"{SCHEME}{self.bootstrap}"


def is_kafka(text: str | None) -> bool:
    """Whether an address is that of a Kafka cluster."""
    return text is not None and text.startswith(SCHEME)


def _server(text: str) -> str:
    host, _, port = text.strip().rpartition(":")
    if not host and text.strip() and not text.strip().startswith(":"):
        return f"{text.strip()}:{_PORT}"
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(
            f"write {SCHEME}HOST:PORT,HOST:PORT?option=value; one of the servers is no HOST:PORT"
        )
    return f"{host}:{port}"


def _number(options: dict[str, str], name: str, default: int, limit: int) -> int:
    text = options.pop(name, None)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= limit:
        raise ValueError(f"{name} is a number from 1 to {limit:,}, not {text!r}")
    return int(text)


def _client(options: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in options.items():
        if why := _RESERVED.get(name):
            raise ValueError(f"{name} cannot be set: {why}")
        own = name.removesuffix(_FROM_FILE)
        if own == name or own not in _SECRET:
            found[name] = value
            continue
        try:
            found[own] = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name}: {error}") from error
    return found
