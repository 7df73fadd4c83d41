"""
Whose requests count against which rate: clients by the host they come from, and topics. PURE.

A quota that was set for one of them takes the place of the default as a whole. All connections of a
host share its rates, so another connection brings nothing more.

Used by the handlers, which ask before they serve and count what went through; uses the buckets. Time is
passed in.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace_mq.broker.quotas.token_bucket import TokenBucket
from headrace_mq.errors import Throttled
from headrace_mq.protocol.limits import CLIENT, NO_RATES, TOPIC, Rates, Throttling
from headrace_mq.settings import BrokerSettings

__all__ = ["FETCH", "PRODUCE", "Demand", "Flow", "QuotaTarget", "Quotas", "Room", "quotas_of"]

Batch = bytes | memoryview

# More than anything brings.
_ENDLESS = 1 << 62
PRODUCE, FETCH = "produce", "fetch"
# How long a client that was held up stays on the list.
_REMEMBERED_MS = 600_000
# Those in one answer: the ones that waited longest.
_TOLD_MAX = 1_000


class QuotaTarget(NamedTuple):
    """A client or a topic."""

    kind: str
    name: str


class Room(NamedTuple):
    """How much may be read at once."""

    messages: int
    size: int

    def take(self, batches: list[Batch], counts: Iterable[int], *, one: bool) -> list[Batch]:
        """The first batches for which there is room; with `one` at least one of them."""
        messages = size = taken = 0
        for batch, count in zip(batches, counts, strict=True):
            messages, size = messages + count, size + len(batch)
            if (messages > self.messages or size > self.size) and (taken or not one):
                break
            taken += 1
        return batches[:taken]


class Flow:
    """What one client or topic sends, or reads.

    Attributes:
        whose: which client or topic.
        way: "produce" or "fetch".
        requests: how many were held up.
        waited_ms: for how long in all.
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
        """How long until so much may pass; 0: now."""
        return max(
            self._bytes.wait_ms(now_ms, size) if self._bytes else 0,
            self._messages.wait_ms(now_ms, messages) if self._messages else 0,
        )

    def charge(self, now_ms: int, messages: int, size: int) -> None:
        """Counts what passed."""
        if self._bytes:
            self._bytes.charge(now_ms, size)
        if self._messages:
            self._messages.charge(now_ms, messages)

    def room(self, now_ms: int) -> "Room":
        """What may pass now without owing anything."""
        return Room(
            self._messages.room(now_ms) if self._messages else _ENDLESS,
            self._bytes.room(now_ms) if self._bytes else _ENDLESS,
        )

    def lift(self) -> None:
        """Limits nothing any more: another quota has taken its place."""
        self._bytes = self._messages = None

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held up."""
        self.requests += 1
        self.waited_ms += waited_ms
        self._held_at_ms = now_ms

    def describe(self, now_ms: int) -> Throttling:
        """Tells who waited for it."""
        owed_ms = max(one.owed_ms(now_ms) for one in self._buckets())
        return Throttling(*self.whose, self.way, self.requests, self.waited_ms, owed_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether a new one would do the same, and there is nothing left to tell."""
        told = not self.requests or now_ms - self._held_at_ms > _REMEMBERED_MS
        return told and all(one.is_full(now_ms) for one in self._buckets())

    def _buckets(self) -> list[TokenBucket]:
        return [one for one in (self._bytes, self._messages) if one]


class Demand(NamedTuple):
    """What a request takes of a flow; a fetch takes 1, because it is not known yet what it brings."""

    flow: Flow
    messages: int = 1
    size: int = 1

    @property
    def key(self) -> object:
        """The same for all who share the flow."""
        return self.flow

    def wait_ms(self, now_ms: int) -> int:
        """How long until it may pass."""
        return self.flow.wait_ms(now_ms, self.messages, self.size)

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held up."""
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
        defaults: of each kind, for all that have none of their own.
        burst_ms: what may pass at once is what passes in this time.

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
        """Takes the quotas of single clients and topics; those that changed begin with a full bucket."""
        changed = {whose for whose, _ in own.items() ^ self._own.items()}
        self._own = dict(own)
        for whose, way in list(self._flows):
            if whose in changed:
                self._flows.pop((whose, way)).lift()
        self.active = any(
            rates != NO_RATES for rates in (*self._own.values(), *self._defaults.values())
        )

    def rates(self, whose: QuotaTarget) -> Rates:
        """The quota of a client or topic."""
        return self._own.get(whose) or self._defaults.get(whose.kind, NO_RATES)

    def flow(self, whose: QuotaTarget, way: str, now_ms: int) -> Flow | None:
        """What counts for a client or topic; None where nothing limits it."""
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
        """What counts for all that take part in a request."""
        found = (self.flow(whose, way, now_ms) for whose in parts)
        return [flow for flow in found if flow is not None]

    def room(self, parts: Iterable[QuotaTarget], now_ms: int) -> Room:
        """How much a fetch of all these may bring without owing anything."""
        rooms = [flow.room(now_ms) for flow in self.flows(parts, FETCH, now_ms)]
        return Room(
            min((one.messages for one in rooms), default=_ENDLESS),
            min((one.size for one in rooms), default=_ENDLESS),
        )

    def throttled(self, now_ms: int) -> list[Throttling]:
        """Who was held up in the last ten minutes, who waited longest first."""
        held = [flow.describe(now_ms) for flow in self._flows.values() if flow.requests]
        return sorted(held, key=lambda one: -one.waited_ms)[:_TOLD_MAX]

    def forget_idle(self, now_ms: int) -> None:
        """Drops what a new one would do as well; call it now and then."""
        idle = [key for key, flow in self._flows.items() if flow.is_idle(now_ms)]
        for key in idle:
            del self._flows[key]


def quotas_of(settings: BrokerSettings) -> Quotas:
    """Returns the quotas of clients and topics that have none of their own."""
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
