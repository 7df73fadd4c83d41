"""
Charges PRODUCE and FETCH to quotas, and holds requests that must wait.

Runs only if a limit is set. Batches count when they arrive; a fetch counts when its size is known, so it
passes as soon as there is no debt.

Used by `handlers.produce` and `handlers.fetch`; uses the broker's `throttle`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from headrace_mq._net.server import Connection
from headrace_mq.broker.quotas.quotas import FETCH, PRODUCE, Demand, QuotaTarget, Room
from headrace_mq.broker.quotas.throttle import Held, Obstacle, WaitLine
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import BrokerError, DataCorrupt, ResponseCode, Throttled
from headrace_mq.protocol.batch import BatchHeader, read_header
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.limits import CLIENT, TOPIC

__all__ = ["Resume", "charge_fetched", "hold_fetch", "hold_produce", "room_to_fetch"]

# PRODUCE requests of a connection keep their order; each fetch has a line of its own.
_PRODUCE_LINE = -1

Parts = tuple[bytes | memoryview, ...]
# Serves a held request; returns None if it is answered later.
Resume = Callable[[], "Parts | None"]


def hold_produce(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    batches: Sequence[memoryview],
    resume: Resume,
) -> bool:
    """Holds a request that must wait; returns False if it is charged and may be served now.

    Raises:
        Throttled: too many requests wait already, or too many bytes of them.
    """
    if state.server.charged_bytes + len(frame.body) > state.settings.requests_bytes_max:
        raise Throttled(
            f"requests in work take {state.server.charged_bytes} bytes, which is as much as they may;"
            " try again soon, or raise requests_bytes_max"
        )
    demands = _demands(state, connection, batches)
    topics = {header.queue.topic for batch in batches if (header := _header(batch))}
    obstacles: list[Obstacle] = [*demands, *state.backlogs.blocked(topics)]
    line = WaitLine(connection, _PRODUCE_LINE, connection.client_id)
    size = len(frame.body)

    def go(waited_ms: int) -> None:
        _waited(state, connection, size, waited_ms)
        _charge(state, demands)
        _serve(connection, frame, resume)

    def refused(error: BrokerError, waited_ms: int) -> None:
        _waited(state, connection, size, waited_ms)
        refuse(connection, frame, error)

    if state.throttle.hold(line, Held(obstacles, go, refused)):
        connection.charge(size)
        return True
    _charge(state, demands)
    return False


def hold_fetch(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    topics: Iterable[str],
    resume: Resume,
) -> bool:
    """Holds a fetch while an earlier one is not paid off; returns False if it may be served now.

    Raises:
        Throttled: too many requests wait already.
    """
    now_ms = state.clock.monotonic_ms()
    flows = state.quotas.flows(_parts(state, connection, topics), FETCH, now_ms)

    def go(waited_ms: int) -> None:
        _waited(state, connection, 0, waited_ms)
        _serve(connection, frame, resume)

    def refused(error: BrokerError, waited_ms: int) -> None:
        _waited(state, connection, 0, waited_ms)
        refuse(connection, frame, error)

    line = WaitLine(connection, frame.correlation, connection.client_id)
    return state.throttle.hold(line, Held([Demand(flow) for flow in flows], go, refused))


def room_to_fetch(state: BrokerState, connection: Connection, topics: Iterable[str]) -> Room:
    """Returns how much a fetch may bring; more is allowed, but makes a debt."""
    parts = _parts(state, connection, topics)
    return state.quotas.room(parts, state.clock.monotonic_ms())


def charge_fetched(
    state: BrokerState, connection: Connection, topic: str, messages: int, size: int
) -> None:
    """Charges the messages of one topic in a fetch."""
    now_ms = state.clock.monotonic_ms()
    for flow in state.quotas.flows(_parts(state, connection, (topic,)), FETCH, now_ms):
        flow.charge(now_ms, messages, size)


def _demands(
    state: BrokerState, connection: Connection, batches: Iterable[memoryview]
) -> list[Demand]:
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for batch in batches:
        header = _header(batch)
        if header is None:
            continue
        messages[header.queue.topic] += header.count
        sizes[header.queue.topic] += len(batch)
    now_ms = state.clock.monotonic_ms()
    demands = []
    for whose in _parts(state, connection, messages):
        flow = state.quotas.flow(whose, PRODUCE, now_ms)
        if flow is not None and whose.kind == CLIENT:
            demands.append(Demand(flow, messages.total(), sizes.total()))
        elif flow is not None:
            demands.append(Demand(flow, messages[whose.name], sizes[whose.name]))
    return demands


def _header(batch: memoryview) -> BatchHeader | None:
    try:
        return read_header(batch)
    except DataCorrupt:
        # Serving the request will refuse it.
        return None


def _parts(state: BrokerState, connection: Connection, topics: Iterable[str]) -> list[QuotaTarget]:
    """Returns the targets whose rates count. Ignores unknown topics: clients could invent any number."""
    peer = state.peers.get(connection)
    client = [] if peer is None else [QuotaTarget(CLIENT, peer.host)]
    return client + [QuotaTarget(TOPIC, topic) for topic in topics if topic in state.topics]


def _charge(state: BrokerState, demands: Iterable[Demand]) -> None:
    now_ms = state.clock.monotonic_ms()
    for demand in demands:
        demand.flow.charge(now_ms, demand.messages, demand.size)


def _waited(state: BrokerState, connection: Connection, size: int, waited_ms: int) -> None:
    connection.discharge(size)
    peer = state.peers.get(connection)
    if peer is not None:
        peer.throttled_ms += waited_ms


def _serve(connection: Connection, frame: Frame, resume: Resume) -> None:
    try:
        parts = resume()
    except Exception as error:  # noqa: BLE001 - as in the dispatcher: a failure becomes an answer
        refuse(connection, frame, error)
    else:
        if parts is not None and not frame.is_oneway:
            connection.answer(ResponseCode.OK, frame.correlation, *parts)
