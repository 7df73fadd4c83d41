"""
The door of the gateway: before every endpoint, a client says who it is.

`/health` and `/ready` are open, because those who watch a process have no token; they say more to a client
that has one. A browser asks with OPTIONS, without a token, what a page may send.

Stands behind the answers to pages of other origins, so that those can read a refusal. Used by the gateway.
"""

from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.access.principal import Principal
from headrace.gateway.access.audit import AccessAudit
from headrace.gateway.access.authentication import Authentication
from headrace.gateway.access.caller import Caller, admit
from headrace.gateway.access.refusals import KeysAway, TokenRefused

__all__ = ["FrontDoor"]

_OPEN: Final = frozenset({"/health", "/ready"})


class FrontDoor:
    """Lets requests in that say who sends them.

    Args:
        inside: the gateway's endpoints.
        authentication: finds out who sends a request.
        audit: where refusals are written.
    """

    def __init__(self, inside: ASGIApp, authentication: Authentication, audit: AccessAudit) -> None:
        self._inside = inside
        self._authentication = authentication
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or answers with 401, or with 503 while tokens cannot be judged."""
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            await self._inside(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            principal = await self._authentication.find(headers)
        except TokenRefused as refused:
            if not (refused.missing and scope["path"] in _OPEN):
                self._audit.refused(scope, None, str(refused))
                await self._authentication.refusal(refused).response(scope, receive, send)
                return
        except KeysAway:
            await self._authentication.outage().response(scope, receive, send)
            return
        else:
            admit(scope, Caller(principal, partial(self._is_still, principal, headers)))
        await self._inside(scope, receive, send)

    async def _is_still(self, principal: Principal, headers: Headers) -> bool:
        """Whether a token is good now, and says the same as before: roles may be taken away, too."""
        try:
            return await self._authentication.find(headers) == principal
        except (TokenRefused, KeysAway):
            return False
