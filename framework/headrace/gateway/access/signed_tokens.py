"""
Tokens that an issuer has signed (JWT, RFC 7519): judged by its public keys, without asking it about each.

A token is good if one of the issuer's keys signed it with an algorithm of the settings, it is for this
audience, and its time has come and is not over. Its `sub` is the principal's name; a claim has the roles.

Used by `authentication`; uses PyJWT and the issuer's keys.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import jwt

from headrace._runtime.clock import Clock
from headrace.access.principal import Principal, check_role
from headrace.gateway.access.key_set import KeySet
from headrace.gateway.access.refusals import TokenRefused
from headrace.gateway.settings import GatewaySettings

__all__ = ["SignedTokens"]

_REQUIRED: Final = ("exp", "iss", "aud", "sub")


class SignedTokens:
    """Finds out who a signed token is of.

    Args:
        settings: of the issuer, and of what its tokens must be.
        fetched: gets the bytes at an address; by default over HTTPS.
        clock: tells how old the keys are.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        fetched: Callable[[str], bytes] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._leeway = timedelta(milliseconds=settings.jwt_leeway_ms)
        self._keys = KeySet(
            settings.jwks_url or "", settings.jwt_algorithms, fetched=fetched, clock=clock
        )

    def stop(self) -> None:
        """Ends what is under way."""
        self._keys.stop()

    async def find(self, token: str) -> Principal:
        """Returns who a token is of.

        Raises:
            TokenRefused: it is not good.
            KeysAway: there are no keys to judge it by.
        """
        algorithm, key_id = self._header(token)
        key = await self._keys.find(key_id)
        if key.algorithm_name != algorithm:
            raise TokenRefused("the algorithm is not that of the key")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=list(self._settings.jwt_audience),
                issuer=self._settings.jwt_issuer,
                leeway=self._leeway,
                options={"require": list(_REQUIRED)},
            )
        except jwt.PyJWTError as error:
            # Its name alone: the sentence may have what the client made up.
            raise TokenRefused(type(error).__name__) from error
        return self._principal(claims)

    def _header(self, token: str) -> tuple[str, str | None]:
        try:
            header: dict[str, Any] = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise TokenRefused(type(error).__name__) from error
        if header.get("alg") not in self._settings.jwt_algorithms:
            raise TokenRefused("the algorithm is not allowed")
        if "crit" in header:
            raise TokenRefused("the token has extensions that must be understood")
        key_id = header.get("kid")
        return header["alg"], key_id if isinstance(key_id, str) else None

    def _principal(self, claims: dict[str, Any]) -> Principal:
        roles = frozenset(_roles(_claim(claims, self._settings.jwt_roles_claim)))
        try:
            return Principal(claims["sub"], roles)
        except (TypeError, ValueError) as error:
            raise TokenRefused("no principal has such a name, or so many roles") from error


def _claim(claims: dict[str, Any], path: str) -> Any:
    """Returns a claim by its name; else, with dots in it, the part of one."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _roles(claim: Any) -> Iterator[str]:
    """Yields the roles of a claim, which is a list, or text with spaces between; no role can have others."""
    named = claim.split() if isinstance(claim, str) else claim
    for each in named if isinstance(named, list) else ():
        try:
            yield check_role(each)
        except ValueError:
            continue
