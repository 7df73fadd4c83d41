"""
The metrics of a name server: each with its name, and how it is collected.

Used by `process`, and by the page `docs/metrics.md`, which is made of the table.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headrace_mq.metrics.exposition import process_samples, written
from headrace_mq.metrics.table import PROCESS_METRICS, Metric, Sample
from headrace_mq.protocol.names.routes import REPLICA, ROLES

if TYPE_CHECKING:
    from headrace_mq.nameserver.name_server import NameServer

__all__ = ["NAME_SERVER_METRICS", "samples", "text"]

READY: Final = Metric(
    "headrace_nameserver_ready", "gauge", "0 or 1", "1 once it has run long enough that each broker has registered."
)  # fmt: skip
BROKERS: Final = Metric(
    "headrace_nameserver_brokers", "gauge", "brokers", "Brokers that are registered.", ("role",)
)
LEADERLESS: Final = Metric(
    "headrace_nameserver_groups_without_leader", "gauge", "groups",
    "Groups whose brokers are registered, and none of them leads.",
)  # fmt: skip
CONNECTIONS: Final = Metric(
    "headrace_nameserver_connections", "gauge", "connections", "Connections of brokers and clients that are open."
)  # fmt: skip
REQUESTS: Final = Metric(
    "headrace_nameserver_requests_total", "counter", "requests", "Requests that were answered.", ("request",)
)  # fmt: skip
REFUSED: Final = Metric(
    "headrace_nameserver_requests_refused_total", "counter", "requests",
    "Requests that were refused; the answer says why.",
)  # fmt: skip
EXPIRED: Final = Metric(
    "headrace_nameserver_expired_total", "counter", "brokers",
    "Brokers that were forgotten because they said nothing for ten seconds.",
)  # fmt: skip
NAME_SERVER_METRICS: Final = (
    READY, BROKERS, LEADERLESS, CONNECTIONS, REQUESTS, REFUSED, EXPIRED, *PROCESS_METRICS,
)  # fmt: skip


async def text(server: "NameServer") -> bytes:
    """Returns the metrics of this moment as Prometheus reads them."""
    return await written([*process_samples(), *samples(server)])


def samples(server: "NameServer") -> Iterator[Sample]:
    """Yields every sample of a name server."""
    known = server.routes("", "")
    yield READY.sample(known.ready)
    roles = Counter(one.role for one in known.brokers)
    for role in ROLES:
        yield BROKERS.sample(roles[role], role)
    groups = {(one.cluster, one.group) for one in known.brokers}
    led = {(one.cluster, one.group) for one in known.brokers if one.role != REPLICA}
    yield LEADERLESS.sample(len(groups - led))
    yield CONNECTIONS.sample(server.connections)
    for request, count in server.answered.items():
        yield REQUESTS.sample(count, request)
    yield REFUSED.sample(server.refused)
    yield EXPIRED.sample(server.expired)
