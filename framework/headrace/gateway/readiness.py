"""
`GET /ready`: whether every part that a request needs is there, and which is not.

Answers a load balancer or a monitor; asks the broker and the databases. It changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.gateway.settings import GatewaySettings

__all__ = ["Check", "Readiness"]

log = get_logger(__name__)

# Returns when a part is there; raises anything, with a sentence, when it is not.
Check = Callable[[], Awaitable[None]]


class Readiness:
    """Looks at named parts, all at once, each for a bounded time.

    Answers may be some time old (`ready_cache_ms`); callers at the same time share one look.

    Args:
        checks: by the part's name.
        settings: the bounds.
        clock: tells how old an answer is.
    """

    def __init__(
        self, checks: Mapping[str, Check], settings: GatewaySettings, clock: Clock | None = None
    ) -> None:
        self._checks = dict(checks)
        self._check_ms = settings.check_ms
        self._cache_ms = settings.ready_cache_ms
        self._clock = clock or SystemClock()
        self._looking = asyncio.Lock()  # so that one look serves all who ask meanwhile
        self._looked_at: int | None = None
        self._missing: Mapping[str, str] = {}

    @property
    def parts(self) -> tuple[str, ...]:
        """What is looked at."""
        return tuple(self._checks)

    async def missing(self) -> Mapping[str, str]:
        """Returns the parts that are not there, each with a sentence; empty: ready."""
        async with self._looking:
            now = self._clock.monotonic_ms()
            if self._looked_at is None or now - self._looked_at >= self._cache_ms:
                self._missing = await self._look()
                self._looked_at = self._clock.monotonic_ms()
            return self._missing

    async def away(self, part: str) -> bool:
        """Whether one part is not there right now; False for a part that is not watched."""
        check = self._checks.get(part)
        return check is not None and await self._try(part, check) is not None

    async def _look(self) -> Mapping[str, str]:
        found = await asyncio.gather(*(self._try(*one) for one in self._checks.items()))
        wrong = {
            part: sentence
            for part, sentence in zip(self._checks, found, strict=True)
            if sentence is not None
        }
        return MappingProxyType(wrong)

    async def _try(self, part: str, check: Check) -> str | None:
        try:
            async with asyncio.timeout(self._check_ms / 1_000):
                await check()
        except TimeoutError:
            return f"no answer within {self._check_ms} ms"
        except HeadraceError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - any error means that the part is not there
            # The sentence of a stranger may hold an address or a password: into the log only.
            log.warning("part not ready", part=part, error=str(error))
            return type(error).__name__
        return None
