"""
A client that was let in: who it is, and which commands are its own.

The ids of a principal's commands begin with its name: `ann:KEY` is what its `Idempotency-Key: KEY` means. So a
key of one principal is never that of another, and a result can be shown to its sender alone.

Made by the door; used by the endpoints.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.types import Scope

from headrace.access.principal import Principal
from headrace.domain.identity import ID_CHARACTERS_MAX, check_id
from headrace.gateway.problems import Problem

__all__ = ["Caller", "admit", "caller_of"]

_KEY: Final = "headrace.caller"


async def _always() -> bool:
    return True


class Caller:
    """What the gateway knows of the client of a request.

    Args:
        principal: who it is; None: the gateway does not ask.
        still_valid: whether its token is good now, for answers that stay open.
    """

    def __init__(
        self,
        principal: Principal | None = None,
        still_valid: Callable[[], Awaitable[bool]] = _always,
    ) -> None:
        self.principal = principal
        self.still_valid = still_valid

    def command_id(self, key: str) -> str:
        """Returns the id of the client's own command with a key; a whole id of its own is itself.

        Raises:
            Problem: 400, if the key is too long to have the client's name in front.
        """
        if self.principal is None or key.startswith(self.principal.key_prefix):
            return key
        prefix = self.principal.key_prefix
        try:
            return check_id("with your name in front, an Idempotency-Key", prefix + key)
        except ValueError as error:
            raise Problem(
                400,
                "idempotency-key",
                "Unusable Idempotency-Key",
                f"Idempotency-Key: {error}; yours may have {ID_CHARACTERS_MAX - len(prefix)}",
            ) from error


_OPEN: Final = Caller()


def admit(scope: Scope, caller: Caller) -> None:
    """Notes in a request who sends it."""
    scope[_KEY] = caller


def caller_of(request: Request) -> Caller:
    """Returns who sends a request."""
    caller = request.scope.get(_KEY, _OPEN)
    assert isinstance(caller, Caller)
    return caller
