"""
The bodies of login, users and permissions, and what a key of a service signs.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults. A password never goes over the
wire: a client proves that it knows it, and sends of a new one what the broker needs to check that proof.

Used by both sides of the wire. Pure.
"""

import re

import msgspec

from headrace_mq.errors import LoginFailed
from headrace_mq.protocol.bodies import Body

__all__ = [
    "ED25519",
    "SCRAM",
    "Credentials",
    "ExplainAccess",
    "Explanation",
    "ListRules",
    "Login",
    "LoginAnswer",
    "RuleEntry",
    "RulesAnswer",
    "SetPassword",
    "SetRule",
    "SetUser",
    "UserEntry",
    "UsersAnswer",
    "key_greeting",
    "read_key_greeting",
    "signed_by_key",
]

# Of a yes or no: as it was.
AS_IT_IS = -1
# The mechanism of passwords: RFC 7677.
SCRAM = "SCRAM-SHA-256"
# The mechanism of keys: a signature over two random numbers.
ED25519 = "ED25519"
# It begins what a key signs, so that a signature means nothing elsewhere.
_SIGNED = "headrace login 1"
_GREETING = re.compile(r"r=([A-Za-z0-9_-]{32,64}),n=(.+)", re.DOTALL)


class Login(Body, frozen=True):
    """A message of the client in the exchange of a mechanism: first the client's first, then its final one."""

    mechanism: str
    message: str


class LoginAnswer(Body, frozen=True):
    """The broker's message in the exchange; with `done` the client is logged in."""

    message: str
    done: bool = False


def key_greeting(user: str, nonce: str) -> str:
    """Returns a client's first message in the exchange of a key; the broker answers with its own random number."""
    return f"r={nonce},n={user}"


def read_key_greeting(message: str) -> tuple[str, str]:
    """Returns the user and the random number of a client's first message. Raises LoginFailed: it is none."""
    found = _GREETING.fullmatch(message)
    if found is None:
        raise LoginFailed("this is no first message of a login with a key")
    return found[2], found[1]


def signed_by_key(user: str, client_nonce: str, broker_nonce: str) -> bytes:
    """Returns what a key signs to log in; both random numbers are in it, so no signature fits twice."""
    return "\0".join((_SIGNED, client_nonce, broker_nonce, user)).encode()


class Credentials(Body, frozen=True):
    """What a broker keeps to check a password by: RFC 5802. The password does not follow from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "Credentials(…)"


class SetUser(Body, frozen=True):
    """Adds, changes or removes a user; `kind` says which: "add", "change" or "remove".

    `credentials` has one entry, or none: a user then keeps its own, and a new one has only its certificate.
    With `set_roles` the `roles` replace those it has. `admin` and `disabled` are 1, 0, or -1: as it is.
    `keys` has one public key of Ed25519, or none: a user then keeps its own.
    """

    kind: str
    name: str
    credentials: list[Credentials] = msgspec.field(default_factory=list)
    set_roles: bool = False
    roles: list[str] = msgspec.field(default_factory=list)
    admin: int = AS_IT_IS
    disabled: int = AS_IT_IS
    keys: list[bytes] = msgspec.field(default_factory=list)


class SetPassword(Body, frozen=True):
    """Changes a password. Each user may change its own."""

    name: str
    credentials: Credentials


class UserEntry(Body, frozen=True):
    """One user as others may see it."""

    name: str
    roles: list[str]
    admin: bool
    disabled: bool
    password: bool
    key: bool = False


class UsersAnswer(Body, frozen=True):
    """The answer to SET_USER, SET_PASSWORD and LIST_USERS; the first two name the one user."""

    users: list[UserEntry]


class RuleEntry(Body, frozen=True):
    """A rule in words; see `headrace_mq.access.rules`."""

    subject: str
    action: str
    resource: str
    allows: bool


class SetRule(Body, frozen=True):
    """Sets a rule, in place of one about the same; with `remove` takes that away."""

    rule: RuleEntry
    remove: bool = False


class ListRules(Body, frozen=True):
    """Asks for the rules of a user with those of its roles, or of a role; empty: for all."""

    subject: str = ""


class RulesAnswer(Body, frozen=True):
    """The answer to SET_RULE and LIST_RULES."""

    rules: list[RuleEntry] = msgspec.field(default_factory=list)


class ExplainAccess(Body, frozen=True):
    """Asks whether a user may do something, empty: oneself; `resource` has no `*` but for all of a kind."""

    user: str
    action: str
    resource: str


class Explanation(Body, frozen=True):
    """The answer to EXPLAIN_ACCESS; `rule` is empty where none decided."""

    allowed: bool
    reason: str
    rule: str = ""
