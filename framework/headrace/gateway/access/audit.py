"""
The audit of the gateway: one line in the log for each refusal, with who, what, where from and why.

Used by the door and by the endpoints; writes to the log.
"""

from typing import Final
from urllib.parse import quote

from starlette.types import Scope

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.access.principal import Principal

__all__ = ["AccessAudit"]

log = get_logger("headrace.gateway.audit")

# The same refusal of the same client is written once in this time: a client repeats itself.
SAME_REFUSAL_MS: Final = 60_000
# Refusals that are remembered to have been written; an attacker with many addresses fills no memory.
REFUSALS_MAX: Final = 1_000
_PATH_CHARACTERS: Final = 200


class AccessAudit:
    """Writes refusals.

    Args:
        clock: tells how long ago the same one was written.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._written: dict[tuple[str, ...], int] = {}

    def refused(self, scope: Scope, principal: Principal | None, reason: str) -> None:
        """Writes that a request was refused.

        Args:
            scope: of the request.
            principal: who sent it; None: that is not known.
            reason: why.
        """
        name = "" if principal is None else principal.name
        address = str((scope.get("client") or ("",))[0])
        now = self._clock.monotonic_ms()
        refusal = name, address, reason
        written = self._written.get(refusal)
        if written is not None and now - written < SAME_REFUSAL_MS:
            return
        if len(self._written) >= REFUSALS_MAX:
            self._written.clear()
        self._written[refusal] = now
        # Encoded, because a path may have the end of a line in it.
        path = quote(str(scope.get("path", "")))[:_PATH_CHARACTERS]
        log.warning(
            "audit",
            user=name,
            action=f"{scope.get('method', '')} {path}",
            address=address,
            outcome="refused",
            reason=reason,
        )
