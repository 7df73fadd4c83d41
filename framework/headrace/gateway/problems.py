"""
Every answer that is not a success: a problem in JSON, as RFC 9457 defines it.

    {"type": "urn:headrace:problem:rejected", "title": "InsufficientFunds", "status": 409,
     "detail": "account ada holds 5 …", "error": "InsufficientFunds", "command_id": "…"}

Used by every module that refuses a request. A problem never carries a traceback.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.responses import Response

from headrace.errors import SubjectKeysAway

__all__ = ["DATABASE_AWAY", "MEDIA_TYPE", "TYPE_PREFIX", "Problem", "invalid", "named_errors"]

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:headrace:problem:"
# What is raised while a database, or the place of the keys of personal fields, cannot be reached.
DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolTimeout, OSError, SubjectKeysAway)
# Fields listed in one answer: a body of a mebibyte can have a hundred thousand wrong ones.
_ERRORS_MAX: Final = 50
# An unknown field's name comes from the body, too.
_TEXT_CHARACTERS_MAX: Final = 500


class Problem(Exception):
    """A request that ends with something else than it wished for; raise it or send its response.

    Args:
        status: of HTTP.
        kind: for a machine: the last word of the problem's type.
        title: the same for every problem of the kind, or a domain error's code.
        detail: the sentence for a person.
        headers: of the response.
        members: what else a machine may want to know.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self._headers = dict(headers or {})
        self.body: dict[str, Any] = {
            "type": f"{TYPE_PREFIX}{kind}",
            "title": title,
            "status": status,
            "detail": detail,
            **members,
        }

    @property
    def response(self) -> Response:
        """The problem as a response."""
        return Response(
            msgspec.json.encode(self.body), self.status, self._headers, media_type=MEDIA_TYPE
        )


def invalid(detail: str, errors: Sequence[Mapping[str, str]]) -> Problem:
    """Returns the problem of a request whose values do not fit: 422, with a list of fields."""
    return Problem(
        422,
        "invalid",
        "Invalid values",
        detail,
        errors=[dict(error) for error in errors[:_ERRORS_MAX]],
    )


def named_errors(error: ValidationError) -> list[dict[str, str]]:
    """Returns what is wrong, field by field; never the values, which may be secrets."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        {
            "field": ".".join(str(part) for part in one["loc"])[:_TEXT_CHARACTERS_MAX],
            "sentence": one["msg"][:_TEXT_CHARACTERS_MAX],
        }
        for one in found[:_ERRORS_MAX]
    ]
