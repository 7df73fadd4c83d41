"""
The users and rules of a broker; durable.

A change is on disk before it takes effect, and holds across restarts. What takes effect is a new policy, which
is the one that the next request of every connection is measured by.

Used by `logins`, by `guard` and by the handlers of users; kept in a `files.metadata_file`. It knows no requests
but those that change it, and no password: of each it has what a proof is checked by.
"""

import errno
import secrets
from collections.abc import Iterable, Mapping

import msgspec

from headrace_mq.access.policy import Policy
from headrace_mq.access.resources import Pattern
from headrace_mq.access.rules import Rule
from headrace_mq.access.users import User, check_user_name, role_subject
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.errors import InvalidArgument, StoreFull
from headrace_mq.protocol.access import AS_IT_IS, Credentials, RuleEntry, SetUser, UserEntry

__all__ = ["ROLES_MAX", "RULES_MAX", "USERS_MAX", "KeptRule", "KeptUser", "KeptUsers", "UserBook"]

# People make them; the file is written as a whole.
USERS_MAX = 10_000
RULES_MAX = 10_000
# Of one user: the rules of all of them are looked at.
ROLES_MAX = 64
# Fewer would make guesses from a stolen file cheap (RFC 7677); more would let a client work for seconds.
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 1_000_000
_KEY_BYTES = 32
# As long as that of an unknown user: it must not tell them apart.
_SALT_BYTES = 32


class KeptUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user as the file holds it; without a salt it has no password, and without a key none."""

    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0
    roles: tuple[str, ...] = ()
    admin: bool = False
    disabled: bool = False
    public_key: bytes = b""

    def __repr__(self) -> str:
        return f"KeptUser(roles={self.roles}, admin={self.admin}, disabled={self.disabled})"


class KeptRule(msgspec.Struct, frozen=True):
    """One rule in words."""

    subject: str
    action: str
    resource: str
    allows: bool


class KeptUsers(msgspec.Struct, frozen=True):
    """The content of `users.json`.

    `secret` makes the salts of users that do not exist, so that they are the same at each attempt.
    """

    secret: bytes
    users: dict[str, KeptUser] = {}
    rules: list[KeptRule] = []

    def __repr__(self) -> str:
        return f"KeptUsers({len(self.users)} users, {len(self.rules)} rules)"


class UserBook:
    """The users and rules of one broker.

    Args:
        file: holds them.

    Attributes:
        policy: what holds now; replaced as a whole with each change.
        secret: of this broker, never told.
    """

    def __init__(self, file: MetadataFile[KeptUsers]) -> None:
        self._file = file
        self._users: dict[str, KeptUser] = {}
        self._rules: dict[tuple[str, str, Pattern], Rule] = {}
        self.secret = secrets.token_bytes(_KEY_BYTES)
        self.policy = Policy({}, [])

    def load(self) -> None:
        """Reads the file. Raises DataCorrupt, FormatTooNew: it cannot be used."""
        kept = self._file.read()
        if kept is not None:
            self.secret = kept.secret
            rules = (
                Rule.parse(one.subject, one.action, one.resource, allows=one.allows)
                for one in kept.rules
            )
            self._apply(kept.users, {rule.key: rule for rule in rules})

    @property
    def has_admin(self) -> bool:
        """Whether an administrator can log in."""
        return any(user.admin and not user.disabled for user in self._users.values())

    def credentials(self, name: str) -> Credentials | None:
        """Returns what the proof of a user's password is checked by; None where there is none."""
        user = self._users.get(name)
        if user is None or user.disabled or not user.salt:
            return None
        return Credentials(user.salt, user.stored_key, user.server_key, user.iterations)

    def public_key(self, name: str) -> bytes:
        """Returns what a signature of a user is checked by; empty where there is none."""
        user = self._users.get(name)
        return b"" if user is None or user.disabled else user.public_key

    def is_certified(self, subject: str) -> bool:
        """Returns whether a certificate with this subject is a login: of a user without a password and a key."""
        user = self._users.get(subject)
        return user is not None and not (user.disabled or user.salt or user.public_key)

    def change(self, request: SetUser) -> UserEntry:
        """Adds, changes or removes a user; durable.

        Raises:
            InvalidArgument: there is one of the name, or none, or a value is out of its range.
            StoreFull: the disk is full; everything stays as it was.
        """
        name, before = request.name, self._users.get(request.name)
        check_user_name(name)
        if request.kind not in {"add", "change", "remove"}:
            raise InvalidArgument(f"a user is added, changed or removed, not {request.kind!r}")
        if (before is not None) == (request.kind == "add"):
            known = "there is a user" if before is not None else "there is no user"
            raise InvalidArgument(f"{known} {name!r}; `headrace user list` names them all")
        users = dict(self._users)
        after = _changed(before or KeptUser(), request)
        if request.kind == "remove":
            del users[name]
        else:
            users[name] = after
        self._require_admin(users)
        rules = self._rules
        if request.kind == "remove":  # a later user of that name does not inherit them
            rules = {key: rule for key, rule in rules.items() if rule.subject != name}
        self._write(users, rules)
        return _entry(name, after)

    def set_password(self, name: str, credentials: Credentials) -> UserEntry:
        """Changes a password; durable. Raises InvalidArgument, StoreFull, as `change`."""
        return self.change(SetUser("change", name, [credentials]))

    def set_rule(self, entry: RuleEntry, *, remove: bool) -> list[RuleEntry]:
        """Sets a rule, or takes it away; durable. Returns those of its subject.

        Raises:
            InvalidArgument: it has no meaning, there is no such user, or there are too many.
            StoreFull: the disk is full; everything stays as it was.
        """
        rule = Rule.parse(entry.subject, entry.action, entry.resource, allows=entry.allows)
        rules = {key: held for key, held in self._rules.items() if key != rule.key}
        if not remove:
            if rule.subject not in self._users and not rule.subject.startswith(role_subject("")):
                raise InvalidArgument(
                    f"there is no user {rule.subject!r}; add it first, or write {role_subject('NAME')} for a role"
                )
            rules[rule.key] = rule
        elif rule.key not in self._rules:
            raise InvalidArgument(
                f"there is no such rule; `headrace acl list {rule.subject}` names them"
            )
        self._write(self._users, rules)
        return self.rules(rule.subject)

    def users(self) -> list[UserEntry]:
        """Returns all users in the order of their names."""
        return [_entry(name, user) for name, user in sorted(self._users.items())]

    def rules(self, subject: str = "") -> list[RuleEntry]:
        """Returns the rules of a user with those of its roles, or of a role; of all with an empty name."""
        user = self._users.get(subject)
        subjects = {subject, *map(role_subject, user.roles if user else ())}
        return [
            RuleEntry(rule.subject, rule.action, str(rule.pattern), rule.allows)
            for rule in sorted(self._rules.values(), key=str)
            if not subject or rule.subject in subjects
        ]

    def _require_admin(self, users: Mapping[str, KeptUser]) -> None:
        if self.has_admin and not any(one.admin and not one.disabled for one in users.values()):
            raise InvalidArgument(
                "this is the last administrator, and no one could undo it; make another one first"
            )

    def _write(
        self, users: dict[str, KeptUser], rules: dict[tuple[str, str, Pattern], Rule]
    ) -> None:
        if len(users) > USERS_MAX or len(rules) > RULES_MAX:
            raise InvalidArgument(
                f"a broker has at most {USERS_MAX} users and {RULES_MAX} rules; remove some, or use roles and"
                " prefixes"
            )
        kept = [KeptRule(r.subject, r.action, str(r.pattern), r.allows) for r in rules.values()]
        try:
            self._file.write(KeptUsers(self.secret, users, kept))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full and users and rules stay as they were; free some"
                " space, then try again"
            ) from error
        self._apply(users, rules)

    def _apply(
        self, users: dict[str, KeptUser], rules: dict[tuple[str, str, Pattern], Rule]
    ) -> None:
        self._users, self._rules = users, rules
        known = {
            name: User(name, user.roles, user.admin, user.disabled) for name, user in users.items()
        }
        self.policy = Policy(known, rules.values(), version=self.policy.version + 1)


def _changed(before: KeptUser, request: SetUser) -> KeptUser:
    changes: dict[str, object] = {}
    for given in request.credentials[:1]:
        _check_credentials(given)
        changes = {name: getattr(given, name) for name in Credentials.__struct_fields__}
    for key in request.keys[:1]:
        if len(key) != _KEY_BYTES:
            raise InvalidArgument(f"a public key of Ed25519 has {_KEY_BYTES} bytes, not {len(key)}")
        changes["public_key"] = key
    if request.set_roles:
        changes["roles"] = _roles(request.roles)
    for name in ("admin", "disabled"):
        if getattr(request, name) != AS_IT_IS:
            changes[name] = bool(getattr(request, name))
    return msgspec.structs.replace(before, **changes)


def _roles(names: Iterable[str]) -> tuple[str, ...]:
    roles = tuple(dict.fromkeys(names))
    if len(roles) > ROLES_MAX:
        raise InvalidArgument(f"a user has at most {ROLES_MAX} roles, not {len(roles)}")
    for role in roles:
        check_user_name(role)
    return roles


def _check_credentials(given: Credentials) -> None:
    if not ITERATIONS_MIN <= given.iterations <= ITERATIONS_MAX:
        raise InvalidArgument(
            f"a password is hashed {ITERATIONS_MIN} to {ITERATIONS_MAX} times, not {given.iterations}"
        )
    lengths = len(given.stored_key), len(given.server_key), len(given.salt)
    if lengths != (_KEY_BYTES, _KEY_BYTES, _SALT_BYTES):
        raise InvalidArgument(
            f"keys of SCRAM-SHA-256 have {_KEY_BYTES} bytes, and their salt {_SALT_BYTES} here"
        )


def _entry(name: str, user: KeptUser) -> UserEntry:
    return UserEntry(
        name, list(user.roles), user.admin, user.disabled, bool(user.salt), bool(user.public_key)
    )
