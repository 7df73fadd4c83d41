"""
What keeps other sites out: a cookie of this browser, a token in each form, and headers that allow nothing from elsewhere.

    cookie   HttpOnly, SameSite=Strict      names the browser, and its session once it has signed in
    token    HMAC of the cookie             stands in each form; another site cannot know it
    origin   Sec-Fetch-Site, else Origin    another site's form is refused before its token is read

Used by the console. Pure but for the process's own secret.
"""

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from headrace.gateway.problems import Problem

__all__ = ["HEADERS", "TOKEN_HEADER", "Safety", "check_origin"]

TOKEN_HEADER: Final = "X-Headrace-Token"  # noqa: S105 - the name of a header
_NAME_BYTES: Final = 32
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Safety:
    """The cookies of a console, and its tokens."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_NAME_BYTES)

    def browser(self, request: Request) -> str:
        """Returns the secret name of the browser; empty: it has none yet."""
        return request.cookies.get(_cookie(request), "")

    def new_browser(self) -> str:
        """Returns a name that no one can guess."""
        return secrets.token_urlsafe(_NAME_BYTES)

    def remember(self, request: Request, response: Response, name: str) -> None:
        """Gives a browser its name; it goes when the browser ends."""
        secure = request.url.scheme == "https"
        response.set_cookie(
            _cookie(request), name, httponly=True, samesite="strict", secure=secure, path="/"
        )

    def token(self, name: str) -> str:
        """Returns what stands in the forms of a browser."""
        return hmac.new(self._key, name.encode(), sha256).hexdigest()

    def check(self, request: Request, token: str) -> None:
        """Refuses a change that another site may have sent.

        Args:
            request: with its cookie.
            token: of the form, or of the header.

        Raises:
            Problem: 403.
        """
        check_origin(request.headers)
        name = self.browser(request)
        if not name or not hmac.compare_digest(self.token(name).encode(), token.encode()):
            raise Problem(
                403,
                "forged",
                "Forbidden",
                "this form is not of this console, or the console was restarted; open the page again, and"
                f" programs: get a token from /api/token and send it as {TOKEN_HEADER} with the cookie",
            )


def check_origin(headers: Headers) -> None:
    """Refuses a change that a page of another origin sends; programs say nothing of it.

    Raises:
        Problem: 403.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same = site == "same-origin" if site else True
    if same and not site and origin:
        same = origin.partition("://")[2] == headers.get("host", "")
    if not same:
        raise Problem(
            403,
            "other-site",
            "Forbidden",
            "another site sent this request; open the console itself",
        )


def _cookie(request: Request) -> str:
    # Browsers do not tell ports apart: two consoles of one machine need two names.
    name = f"headrace_console_{request.url.port or ''}"
    return f"__Host-{name}" if request.url.scheme == "https" else name
