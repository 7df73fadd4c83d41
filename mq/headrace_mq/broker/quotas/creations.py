"""
Limits how many queues and offsets the clients of each address create per minute. PURE.

A broker has room for a limited number of each, and they stay until an operator deletes them. So the
clients of one address can create only some per minute, and you notice a faulty client before it uses up
all. The address is that of the socket, because clients could change a name of their own at will.

Used by the handlers; uses `token_bucket`. Time is passed in.
"""

from collections.abc import Mapping

from headrace_mq.broker.quotas.token_bucket import TokenBucket
from headrace_mq.errors import Throttled

__all__ = ["OFFSETS", "QUEUES", "Creations"]

QUEUES, OFFSETS = "queues", "offsets of groups"
_MINUTE_MS = 60_000
_SECONDS = 60


class Creations:
    """The recent creations, by address.

    Args:
        per_minute: how many of each kind the clients of one address may create; 0: no limit.
    """

    def __init__(self, per_minute: Mapping[str, int]) -> None:
        self._rates = {kind: -(-count // _SECONDS) for kind, count in per_minute.items() if count}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def __len__(self) -> int:
        """Returns the number of addresses and kinds with recent creations."""
        return len(self._buckets)

    def take(self, kind: str, host: str, now_ms: int, count: int) -> None:
        """Counts `count` creations of a client.

        Raises:
            Throttled: the clients of its address created too many in the last minute; none is counted.
        """
        rate = self._rates.get(kind)
        if rate is None:
            return
        bucket = self._buckets.get((kind, host))
        if bucket is None:
            bucket = TokenBucket(rate, burst_ms=_MINUTE_MS, now_ms=now_ms)
            self._buckets[kind, host] = bucket
        wait_ms = bucket.wait_ms(now_ms, count)
        if wait_ms:
            raise Throttled(
                f"clients of {host} make at most {rate * _SECONDS} {kind} in a minute, and {count}"
                f" more may follow in {-(-wait_ms // 1_000)} s; try again then, or raise the broker's"
                f" {_SETTINGS[kind]}"
            )
        bucket.charge(now_ms, count)

    def forget_idle(self, now_ms: int) -> None:
        """Drops addresses without recent creations."""
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now_ms)]:
            del self._buckets[key]


_SETTINGS = {QUEUES: "address_queues_per_minute", OFFSETS: "address_offsets_per_minute"}
