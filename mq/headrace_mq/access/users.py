"""
Users and roles. PURE.

A role is a name that rules are for; the users that have it get its rules. It exists as soon as a rule or a user
names it.

Used by the policy, and by the broker, which keeps users.
"""

import unicodedata
from typing import NamedTuple

from headrace_mq.errors import InvalidArgument

__all__ = ["ROLE_PREFIX", "User", "check_user_name", "role_subject"]

# The subject of a rule for a role; no user is called so.
ROLE_PREFIX = "role:"
NAME_CHARACTERS_MAX = 200


class User(NamedTuple):
    """One user, without what it proves itself by.

    Attributes:
        name: as it logs in, or the subject of its certificate.
        roles: whose rules hold for it, too.
        is_admin: whether it may do everything, without regard to rules.
        is_disabled: whether it may do nothing.
    """

    name: str
    roles: tuple[str, ...] = ()
    is_admin: bool = False
    is_disabled: bool = False


def role_subject(role: str) -> str:
    """Returns what rules call a role."""
    return f"{ROLE_PREFIX}{role}"


def check_user_name(name: str) -> None:
    """Raises InvalidArgument unless a user or role may have this name."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a name of a user or role has 1 to {NAME_CHARACTERS_MAX} characters, not {len(name)}"
        )
    if name.startswith(ROLE_PREFIX) or any(unicodedata.category(one)[0] == "C" for one in name):
        raise InvalidArgument(
            f"{name!r} cannot be the name of a user or role: leave out {ROLE_PREFIX!r} at the beginning, and"
            " signs that do not print"
        )
