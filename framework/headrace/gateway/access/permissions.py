"""
What a client may do: asked before each command and each query.

Used by the endpoints; uses what the application declares, and writes refusals to the audit.
"""

from starlette.requests import Request

from headrace.access.allowances import Allowances
from headrace.gateway.access.audit import AccessAudit
from headrace.gateway.access.caller import caller_of
from headrace.gateway.problems import Problem

__all__ = ["Permissions"]


class Permissions:
    """Asks whether the client of a request may do what it asks for.

    Args:
        allowances: of the application.
        audit: where refusals are written.
    """

    def __init__(self, allowances: Allowances, audit: AccessAudit) -> None:
        self._allowances = allowances
        self._audit = audit

    def require_send(self, request: Request, command: str) -> None:
        """Lets a command through, by its name.

        Raises:
            Problem: 403.
        """
        principal = caller_of(request).principal
        if self._is_unknown(request) or not self._allowances.may_send(principal, command):
            raise self._refused(request, f"may not send {command}")

    def require_read(self, request: Request, projection: str) -> None:
        """Lets a query through, by its projection's name.

        Raises:
            Problem: 403.
        """
        principal = caller_of(request).principal
        if self._is_unknown(request) or not self._allowances.may_read(principal, projection):
            raise self._refused(request, f"may not read {projection}")

    def ids(self, request: Request, key: str) -> tuple[str, ...]:
        """Returns the ids that a command may have whose result the client asks for by a key or an id.

        Raises:
            Problem: 400, if the key is too long to have the client's name in front.
        """
        caller = caller_of(request)
        if caller.principal and self._allowances.may_see_all_results(caller.principal):
            # One of others is named whole; one of its own may be.
            return (key,) if key == caller.command_id(key) else (key, caller.command_id(key))
        return (caller.command_id(key),)

    def _is_unknown(self, request: Request) -> bool:
        """Whether roles count and the client has no name; the gateway does not even start in this way."""
        return self._allowances.declared and caller_of(request).principal is None

    def _refused(self, request: Request, what: str) -> Problem:
        principal = caller_of(request).principal
        self._audit.refused(request.scope, principal, what)
        return Problem(
            403,
            "not-allowed",
            "Not allowed",
            f"{principal} {what}: none of its roles may; ask for a token with one that does",
        )
