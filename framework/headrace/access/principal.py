"""
Who sent a command: a name and roles.

It travels as a header of the command's message:

    principal: {"name":"ann","roles":["clerk"]}

A service believes this header, as it believes everything that the broker delivers: who may publish to
the topic of commands may claim to be anyone. Pure.

Used by the gateway, which makes principals of tokens, by the bus and by the command service.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.errors import SerializationError

__all__ = ["PRINCIPAL", "Principal", "check_role", "principal_in"]

# The header of a command's message.
PRINCIPAL: Final = "principal"
# Characters of a name, where each ':' and '%' counts as three: with a name in front, an Idempotency-Key may
# still have 127.
NAME_CHARACTERS_MAX: Final = 127
# Roles of one principal, which go along with each of its commands; an application declares a few.
ROLES_MAX: Final = 100
ROLE_CHARACTERS_MAX: Final = 64

_NAME: Final = re.compile(r"[!-~]+")
# A comma separates roles.
_ROLE: Final = re.compile(rf"[!-+\--~]{{1,{ROLE_CHARACTERS_MAX}}}")


def check_role(role: str) -> str:
    """Returns a role that tokens and declarations can have.

    Raises:
        ValueError: says how a role is written.
    """
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise ValueError(
            f"a role has 1 to {ROLE_CHARACTERS_MAX} printable ASCII characters without space and comma;"
            f" change {str(role)[:ROLE_CHARACTERS_MAX]!r}"
        )
    return role


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a command.

    Raises ValueError for a name or a role that cannot be one.

    Attributes:
        name: 1 to 127 printable ASCII characters without space; each ':' and '%' counts as three.
        roles: what it is, such as "clerk"; 100 at most.
    """

    name: str
    roles: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.key_prefix) > NAME_CHARACTERS_MAX + 1:
            raise ValueError(
                f"a principal's name has 1 to {NAME_CHARACTERS_MAX} printable ASCII characters without space,"
                f" and each ':' and '%' counts as three; change {self.name[:NAME_CHARACTERS_MAX]!r}"
            )
        object.__setattr__(self, "roles", frozenset(map(check_role, self.roles)))
        if len(self.roles) > ROLES_MAX:
            raise ValueError(
                f"a principal has at most {ROLES_MAX} roles, and {self.name} has {len(self.roles)}"
            )

    def __str__(self) -> str:
        return self.name

    @property
    def key_prefix(self) -> str:
        """What the ids of its commands begin with, and those of no other principal."""
        return self.name.replace("%", "%25").replace(":", "%3A") + ":"

    @property
    def header(self) -> dict[str, str]:
        """It as a header of a message."""
        wire = {"name": self.name, "roles": sorted(self.roles)}
        return {PRINCIPAL: msgspec.json.encode(wire).decode()}


class _Wire(msgspec.Struct):
    name: str
    roles: list[str] = []


_decode: Any = msgspec.json.Decoder(_Wire).decode


def principal_in(headers: Mapping[str, str]) -> Principal | None:
    """Returns the principal that a message's headers name, if they name one.

    Raises:
        SerializationError: the header cannot be read.
    """
    text = headers.get(PRINCIPAL)
    if text is None:
        return None
    try:
        wire = _decode(text)
        return Principal(wire.name, frozenset(wire.roles))
    except (ValueError, msgspec.MsgspecError) as error:
        raise SerializationError(f"the header {PRINCIPAL!r} does not decode: {error}") from error
