"""
Decides which rates a request counts against: those of its client's host, and of its topics. PURE.

A quota that is set for a client or a topic replaces the whole default. All connections of a host share
its rates, so another connection gains nothing.

Used by the handlers, which ask before they serve a request and count its messages; uses the buckets. Time
is passed in.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace_mq.broker.quotas.token_bucket import TokenBucket
from headrace_mq.errors import Throttled
from headrace_mq.protocol.limits import CLIENT, NO_RATES, TOPIC, Rates, Throttling
from headrace_mq.settings import BrokerSettings

__all__ = ["FETCH", "PRODUCE", "Demand", "Flow", "QuotaTarget", "Quotas", "Room", "quotas_of"]

Batch = bytes | memoryview

# More than any request can bring.
_ENDLESS = 1 << 62
PRODUCE, FETCH = "produce", "fetch"
# How long a throttled client stays in the report.
_REMEMBERED_MS = 600_000
# Throttled clients in one answer: those that waited the longest.
_TOLD_MAX = 1_000


class QuotaTarget(NamedTuple):
    """A client or a topic."""

    kind: str
    name: str


class Room(NamedTuple):
    """How much may be read at once."""

    messages: int
    size: int

    def without(self, messages: int, size: int) -> "Room":
        """Returns what is left once so much is read."""
        return Room(self.messages - messages, self.size - size)

    def take(self, batches: list[Batch], counts: Iterable[int], *, one: bool) -> list[Batch]:
        """Returns the first batches that fit; with `one`, at least one of them."""
        messages = size = taken = 0
        for batch, count in zip(batches, counts, strict=True):
            messages, size = messages + count, size + len(batch)
            if (messages > self.messages or size > self.size) and (taken or not one):
                break
            taken += 1
        return batches[:taken]


class Flow:
    """The produce or fetch traffic of one client or topic.

    Attributes:
        whose: which client or topic.
        way: "produce" or "fetch".
        requests: the number of requests that were held.
        waited_ms: how long they waited in all.
    """

    __slots__ = ("_bytes", "_held_at_ms", "_messages", "requests", "waited_ms", "way", "whose")

    def __init__(
        self, whose: QuotaTarget, way: str, rates: Rates, *, burst_ms: int, now_ms: int
    ) -> None:
        self.whose, self.way = whose, way
        self.requests = self.waited_ms = 0
        self._held_at_ms = now_ms
        size, messages = (
            (rates.produce_bytes, rates.produce_messages)
            if way == PRODUCE
            else (rates.fetch_bytes, rates.fetch_messages)
        )
        self._bytes = TokenBucket(size, burst_ms=burst_ms, now_ms=now_ms) if size else None
        self._messages = (
            TokenBucket(messages, burst_ms=burst_ms, now_ms=now_ms) if messages else None
        )

    def wait_ms(self, now_ms: int, messages: int, size: int) -> int:
        """Returns the wait until this amount may pass; 0: now."""
        return max(
            self._bytes.wait_ms(now_ms, size) if self._bytes else 0,
            self._messages.wait_ms(now_ms, messages) if self._messages else 0,
        )

    def charge(self, now_ms: int, messages: int, size: int) -> None:
        """Counts an amount that has passed."""
        if self._bytes:
            self._bytes.charge(now_ms, size)
        if self._messages:
            self._messages.charge(now_ms, messages)

    def room(self, now_ms: int) -> "Room":
        """Returns the amount that may pass now without a debt."""
        return Room(
            self._messages.room(now_ms) if self._messages else _ENDLESS,
            self._bytes.room(now_ms) if self._bytes else _ENDLESS,
        )

    def lift(self) -> None:
        """Removes all limits, because another quota has replaced this one."""
        self._bytes = self._messages = None

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held."""
        self.requests += 1
        self.waited_ms += waited_ms
        self._held_at_ms = now_ms

    def describe(self, now_ms: int) -> Throttling:
        """Returns the report of the requests that waited."""
        owed_ms = max(one.owed_ms(now_ms) for one in self._buckets())
        return Throttling(*self.whose, self.way, self.requests, self.waited_ms, owed_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether a new flow would behave the same, and there is nothing left to report."""
        told = not self.requests or now_ms - self._held_at_ms > _REMEMBERED_MS
        return told and all(one.is_full(now_ms) for one in self._buckets())

    def _buckets(self) -> list[TokenBucket]:
        return [one for one in (self._bytes, self._messages) if one]


class Demand(NamedTuple):
    """The amount that a request takes from a flow; a fetch takes 1, because its size is not known yet."""

    flow: Flow
    messages: int = 1
    size: int = 1

    @property
    def key(self) -> object:
        """The same for all requests that share the flow."""
        return self.flow

    def wait_ms(self, now_ms: int) -> int:
        """Returns the wait until the request may pass."""
        return self.flow.wait_ms(now_ms, self.messages, self.size)

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held."""
        self.flow.waited(now_ms, waited_ms)

    def refusal(self, waited_ms: int) -> Throttled:
        """Returns the error for a request that may not wait any longer."""
        (kind, name), way = self.flow.whose, self.flow.way
        return Throttled(
            f"{kind} {name!r} is over its quota to {way} and this request has waited {waited_ms} ms"
            " already; send or read less at a time, or raise the quota"
        )


class Quotas:
    """All quotas of a broker.

    Args:
        defaults: the quota of each kind, for all without one of their own.
        burst_ms: the burst is the amount that the rate allows in this time.

    Attributes:
        active: whether there is any quota at all.
    """

    def __init__(self, defaults: Mapping[str, Rates], *, burst_ms: int) -> None:
        self._defaults = dict(defaults)
        self._burst_ms = burst_ms
        self._own: dict[QuotaTarget, Rates] = {}
        self._flows: dict[tuple[QuotaTarget, str], Flow] = {}
        self.active = False
        self.replace({})

    def __len__(self) -> int:
        return len(self._flows)

    def replace(self, own: Mapping[QuotaTarget, Rates]) -> None:
        """Sets the quotas of single clients and topics; a changed quota begins with a full bucket."""
        changed = {whose for whose, _ in own.items() ^ self._own.items()}
        self._own = dict(own)
        for whose, way in list(self._flows):
            if whose in changed:
                self._flows.pop((whose, way)).lift()
        self.active = any(
            rates != NO_RATES for rates in (*self._own.values(), *self._defaults.values())
        )

    def rates(self, whose: QuotaTarget) -> Rates:
        """Returns the quota of a client or topic."""
        return self._own.get(whose) or self._defaults.get(whose.kind, NO_RATES)

    def flow(self, whose: QuotaTarget, way: str, now_ms: int) -> Flow | None:
        """Returns the flow of a client or topic; None if it has no limit."""
        found = self._flows.get((whose, way))
        if found is None:
            rates = self.rates(whose)
            limited = (
                rates.produce_bytes or rates.produce_messages
                if way == PRODUCE
                else rates.fetch_bytes or rates.fetch_messages
            )
            if not limited:
                return None
            found = Flow(whose, way, rates, burst_ms=self._burst_ms, now_ms=now_ms)
            self._flows[whose, way] = found
        return found

    def flows(self, parts: Iterable[QuotaTarget], way: str, now_ms: int) -> list[Flow]:
        """Returns the flows of all clients and topics of a request."""
        found = (self.flow(whose, way, now_ms) for whose in parts)
        return [flow for flow in found if flow is not None]

    def room(self, parts: Iterable[QuotaTarget], now_ms: int) -> Room:
        """Returns how much a fetch of all these may bring without a debt."""
        rooms = [flow.room(now_ms) for flow in self.flows(parts, FETCH, now_ms)]
        return Room(
            min((one.messages for one in rooms), default=_ENDLESS),
            min((one.size for one in rooms), default=_ENDLESS),
        )

    def throttled(self, now_ms: int) -> list[Throttling]:
        """Returns the clients and topics throttled in the last ten minutes, the longest waits first."""
        held = [flow.describe(now_ms) for flow in self._flows.values() if flow.requests]
        return sorted(held, key=lambda one: -one.waited_ms)[:_TOLD_MAX]

    def forget_idle(self, now_ms: int) -> None:
        """Drops idle flows; call it now and then."""
        idle = [key for key, flow in self._flows.items() if flow.is_idle(now_ms)]
        for key in idle:
            del self._flows[key]


def quotas_of(settings: BrokerSettings) -> Quotas:
    """Returns the quotas with the default rates of the settings."""
    defaults = {
        CLIENT: Rates(
            settings.client_produce_bytes,
            settings.client_produce_messages,
            settings.client_fetch_bytes,
            settings.client_fetch_messages,
        ),
        TOPIC: Rates(
            settings.topic_produce_bytes,
            settings.topic_produce_messages,
            settings.topic_fetch_bytes,
            settings.topic_fetch_messages,
        ),
    }
    return Quotas(defaults, burst_ms=settings.quota_burst_ms)
