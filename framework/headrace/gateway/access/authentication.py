"""
From the `Authorization` of a request to who sends it.

Every token that is not valid gets the same answer, no matter what is wrong with it; the reason is in the log.

Used by the door; uses the file of tokens, and the keys of those who sign tokens.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from headrace.access.principal import Principal
from headrace.errors import ExtraMissing
from headrace.gateway.access.refusals import TokenRefused
from headrace.gateway.access.token_file import TokenFile
from headrace.gateway.problems import Problem
from headrace.gateway.settings import GatewaySettings

if TYPE_CHECKING:  # an extra: only loaded where it is wanted
    from headrace.gateway.access.signed_tokens import SignedTokens

__all__ = ["Authentication"]

# What servers take as a whole head is some times that; a token with a hundred roles is smaller.
TOKEN_BYTES_MAX: Final = 8_192
_JWT_DOTS: Final = 2
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*) *", re.IGNORECASE)


class Authentication:
    """Finds out who sends a request.

    Args:
        settings: where tokens are.
        realm: the application's name.

    Raises:
        HeadraceError: the file of tokens cannot be used.
        ExtraMissing: signed tokens are wanted, and PyJWT is not installed.
    """

    def __init__(self, settings: GatewaySettings, realm: str) -> None:
        self._realm = realm
        self._retry_after_s = settings.retry_after_s
        self._file = None if settings.tokens is None else TokenFile(settings.tokens)
        self._signed = None if settings.jwks_url is None else _signed_tokens(settings)

    @property
    def required(self) -> bool:
        """Whether the gateway asks who its clients are."""
        return self._file is not None or self._signed is not None

    def look(self) -> None:
        """Takes a new file of tokens if there is one."""
        if self._file is not None:
            self._file.look()

    def stop(self) -> None:
        """Ends what is under way."""
        if self._signed is not None:
            self._signed.stop()

    async def find(self, headers: Headers) -> Principal:
        """Returns who sends a request with these headers.

        Raises:
            TokenRefused: it has no token, or one that is not valid.
            KeysAway: it has a signed token, and there are no keys to judge it by.
        """
        token = _token(headers)
        # No token of the file has dots.
        if self._signed is not None and token.count(".") == _JWT_DOTS:
            return await self._signed.find(token)
        found = None if self._file is None else self._file.find(token)
        if found is None:
            raise TokenRefused("unknown token")
        return found

    def refusal(self, refused: TokenRefused) -> Problem:
        """Returns the answer to a request that does not say who sends it: 401."""
        if refused.missing:
            return self._problem("send a token as `Authorization: Bearer TOKEN`", {})
        sentence = "the token is not valid here; send another one as `Authorization: Bearer TOKEN`"
        return self._problem(sentence, {"error": "invalid_token"})

    def outage(self) -> Problem:
        """Returns the answer while tokens cannot be judged: 503."""
        sentence = "tokens cannot be checked just now; the same request later is safe"
        retry = {"Retry-After": str(self._retry_after_s)}
        return Problem(503, "unavailable", "Service unavailable", sentence, headers=retry)

    def _problem(self, sentence: str, members: Mapping[str, str]) -> Problem:
        said = [f'{name}="{value}"' for name, value in {"realm": self._realm, **members}.items()]
        challenge = {"WWW-Authenticate": f"Bearer {', '.join(said)}", "Cache-Control": "no-store"}
        return Problem(401, "unauthenticated", "No valid token", sentence, headers=challenge)


def _signed_tokens(settings: GatewaySettings) -> "SignedTokens":
    try:
        from headrace.gateway.access.signed_tokens import SignedTokens
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            "http.jwks_url needs PyJWT and cryptography: pip install 'headrace[http,jwt]'"
        ) from error
    return SignedTokens(settings)


def _token(headers: Headers) -> str:
    sent = headers.getlist("authorization")
    if not sent:
        raise TokenRefused("no token", missing=True)
    found = _BEARER.fullmatch(sent[0]) if len(sent) == 1 else None
    if found is None:
        raise TokenRefused("the Authorization is not one Bearer token")
    if len(found[1]) > TOKEN_BYTES_MAX:
        raise TokenRefused("the token is too long")
    return found[1]
