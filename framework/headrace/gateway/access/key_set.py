"""
The public keys of an issuer of tokens, from the address where it publishes them (RFC 7517).

    for FRESH_MS       a key is used as it is
    for STALE_MS       it is used, and the keys are fetched again meanwhile
    later              tokens cannot be judged until the keys come: 503
    an unknown key id  the keys are fetched again, but not sooner than AGAIN_MS after the last time

Used by `signed_tokens`; asks the issuer in a thread.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from jwt import PyJWK, PyJWTError

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.web.opener import opener
from headrace.gateway.access.refusals import KeysAway, TokenRefused

__all__ = ["KeySet", "fetch"]

log = get_logger(__name__)

# A key that its issuer takes back is refused after this: issuers announce new keys hours before.
FRESH_MS: Final = 600_000
# How long the last keys are good while the issuer does not answer: longer than most outages.
STALE_MS: Final = 3_600_000
# Between two questions to the issuer: a client that makes key ids up causes no more than that.
AGAIN_MS: Final = 10_000
# For one answer of the issuer; a request waits for it where its key is not there.
FETCH_MS_MAX: Final = 5_000
# Of one answer: a key takes half a kilobyte, and issuers have a handful.
SET_BYTES_MAX: Final = 262_144
KEYS_MAX: Final = 100
# Shorter ones can be broken.
_RSA_BITS_MIN: Final = 2_048


class KeySet:
    """The keys of an issuer.

    Args:
        url: where they are.
        algorithms: only keys of these are taken.
        fetched: gets the bytes at an address; it may block.
        clock: tells how old the keys are.
    """

    def __init__(
        self,
        url: str,
        algorithms: Collection[str],
        *,
        fetched: Callable[[str], bytes] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._algorithms = frozenset(algorithms)
        self._fetched = fetched or fetch
        self._clock = clock or SystemClock()
        self._keys: Mapping[str, Any] = {}
        self._loaded_ms: int | None = None
        self._asked_ms: int | None = None
        self._loading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> Any:
        """Returns the key with an id; of a set of one key that key, where a token names none.

        Raises:
            TokenRefused: the issuer has no such key.
            KeysAway: it does not answer, and there are no keys that are young enough.
        """
        key, age = self._known(key_id), self._age_ms
        if key is not None and age < STALE_MS:
            if age >= FRESH_MS and self._may_ask:
                self._load()
            return key
        if self._may_ask or self._loading is not None:
            await asyncio.shield(self._load())
            key = self._known(key_id)
        if self._age_ms >= STALE_MS:
            raise KeysAway
        if key is None:
            raise TokenRefused("unknown key")
        return key

    def stop(self) -> None:
        """Ends a question to the issuer that is under way."""
        if self._loading is not None:
            self._loading.cancel()

    @property
    def _age_ms(self) -> int:
        loaded = self._loaded_ms
        return STALE_MS if loaded is None else self._clock.monotonic_ms() - loaded

    @property
    def _may_ask(self) -> bool:
        asked = self._asked_ms
        return asked is None or self._clock.monotonic_ms() - asked >= AGAIN_MS

    def _known(self, key_id: str | None) -> Any:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id or "")

    def _load(self) -> asyncio.Task[None]:
        """Begins to ask the issuer, or returns the question that is under way: all share one."""
        if self._loading is None:
            self._asked_ms = self._clock.monotonic_ms()
            self._loading = asyncio.create_task(self._ask(), name="gateway: keys of tokens")
        return self._loading

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(FETCH_MS_MAX / 1_000):
                body = await asyncio.to_thread(self._fetched, self._url)
            keys = _keys_of(body, self._algorithms)
        except Exception as error:  # noqa: BLE001 - what answers there may be anything; logged, asked again
            log.warning("the keys of tokens cannot be fetched", url=self._url, reason=str(error))
        else:
            if keys.keys() != self._keys.keys():
                log.info("keys of tokens loaded", url=self._url, keys=len(keys))
            self._keys, self._loaded_ms = keys, self._clock.monotonic_ms()
        finally:
            self._loading = None


def fetch(url: str) -> bytes:
    """Returns what is at an address, which the settings have checked; blocks.

    Raises:
        OSError: it does not answer, or not with success.
        ValueError: it is too large.
    """
    with opener().open(url, timeout=FETCH_MS_MAX / 1_000) as answer:
        body: bytes = answer.read(SET_BYTES_MAX + 1)
    if len(body) > SET_BYTES_MAX:
        raise ValueError(f"it has more than {SET_BYTES_MAX} bytes")
    return body


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def _keys_of(body: bytes, algorithms: Collection[str]) -> dict[str, Any]:
    published = msgspec.json.decode(body, type=_Set).keys
    if len(published) > KEYS_MAX:
        raise ValueError(f"it has {len(published)} keys, and {KEYS_MAX} is the limit")
    keys = dict(_usable(published, algorithms))
    if not keys:
        raise ValueError(f"it has no key of {', '.join(sorted(algorithms))}")
    return keys


def _usable(
    published: Iterable[dict[str, Any]], algorithms: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yields the keys that can judge tokens, by their ids; passes over all others."""
    for one in published:
        # A secret that is published is no proof of anything; `oct` is the kind of HS256.
        if one.get("kty") == "oct" or "d" in one or one.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK(one)
        except (PyJWTError, TypeError, ValueError):
            continue
        if key.algorithm_name not in algorithms:
            continue
        if getattr(key.key, "key_size", _RSA_BITS_MIN) < _RSA_BITS_MIN and one["kty"] == "RSA":
            log.warning("a key of tokens is too short and not used", key=str(one.get("kid")))
            continue
        yield str(one.get("kid", "")), key
