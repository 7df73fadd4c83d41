"""
Tokens of clients, by their hashes: the lines of a file, and the tokens themselves.

    # who : its roles : SHA-256 of its token, in hex
    ann:clerk,auditor:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

A token has 256 random bits, so its plain hash says nothing about it, and it cannot be guessed. Pure.

Used by the gateway, which looks tokens up, and by the command line, which makes them.
"""

import hmac
import re
import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from headrace.access.principal import Principal

__all__ = ["Tokens", "new_token", "token_line"]

# Lines of a file: each token is compared with all of them, in a tenth of a millisecond.
TOKENS_MAX: Final = 1_000
# Programs that look for secrets in files and logs find it by this.
_PREFIX: Final = "hrt_"
_TOKEN_BYTES: Final = 32
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FORM: Final = "write NAME:ROLE,ROLE:SHA256 with 64 hex digits, as `headrace token make` does"


def new_token() -> str:
    """Returns a token that was never given before."""
    return _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_line(principal: Principal, token: str) -> str:
    """Returns the line for a token; it does not contain the token.

    Raises:
        ValueError: a role has a colon, which ends the roles of a line.
    """
    if any(":" in role for role in principal.roles):
        raise ValueError("a role of a token has no ':'; choose another name for it")
    return f"{principal.name}:{','.join(sorted(principal.roles))}:{_hashed(token).hex()}"


class Tokens:
    """Who has which token.

    Args:
        held: each principal with the hash of its token; a principal may have several.
    """

    def __init__(self, held: Sequence[tuple[bytes, Principal]] = ()) -> None:
        self._held = tuple(held)

    def __len__(self) -> int:
        return len(self._held)

    @classmethod
    def parse(cls, text: str) -> "Tokens":
        """Reads the lines of a file; empty ones and those that begin with '#' say nothing.

        Raises:
            ValueError: a line cannot be used, or there are too many; the sentence names the line.
        """
        held: dict[bytes, Principal] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                digest, principal = _parsed(line.strip())
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            if digest in held:
                raise ValueError(
                    f"line {number}: {held[digest]} has the same token; make a new one"
                )
            held[digest] = principal
        if len(held) > TOKENS_MAX:
            raise ValueError(f"{len(held)} tokens, and {TOKENS_MAX} is the limit; remove some")
        return cls(list(held.items()))

    def find(self, token: str) -> Principal | None:
        """Returns who has a token; it takes as long for every token, known or not."""
        digest = _hashed(token)
        found: Principal | None = None
        for held, principal in self._held:
            if hmac.compare_digest(held, digest):
                found = principal
        return found


def _hashed(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _parsed(line: str) -> tuple[bytes, Principal]:
    # From the right: a name may contain colons.
    name, colon, digest = line.rpartition(":")
    name, other, roles = name.rpartition(":")
    if not (colon and other and _HASH.fullmatch(digest)):
        raise ValueError(_FORM)
    wished = frozenset(each.strip() for each in roles.split(",") if each.strip())
    return bytes.fromhex(digest), Principal(name, wished)
