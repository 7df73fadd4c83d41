"""
All users and rules at one moment, and what they decide. PURE.

A rule that denies wins over all that allow; without a rule nothing is allowed. Administrators may do everything
but change the audit, and disabled users nothing. `Grants` is what one user may do, and remembers its answers: a policy never changes,
so a new one comes with new grants.

Used by the broker, which asks for each request; a change of users or rules is a new policy.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace_mq.access.resources import Ask, ResourceKind, is_audit_change, is_open
from headrace_mq.access.rules import Rule
from headrace_mq.access.users import User, role_subject

__all__ = ["Grants", "Policy", "Ruling"]

# Answers that one user's grants remember: a client asks for a few resources again and again. About 1 MB.
ANSWERS_MAX = 4_096


class Ruling(NamedTuple):
    """An answer.

    Attributes:
        allowed: the answer itself.
        rule: the rule that decided; None where none did.
        reason: the answer as a sentence without an end.
    """

    allowed: bool
    rule: Rule | None
    reason: str


class _Found:
    """Rules of some subjects by what they are about, so that few are looked at for a question."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._literal: dict[tuple[ResourceKind, str], list[Rule]] = {}
        self._prefixes: dict[ResourceKind, dict[str, list[Rule]]] = {
            kind: {} for kind in ResourceKind
        }
        self._all: dict[ResourceKind, list[Rule]] = {kind: [] for kind in ResourceKind}
        for rule in rules:
            kind, name, is_prefix = rule.pattern
            self._all[kind].append(rule)
            if is_prefix:
                self._prefixes[kind].setdefault(name, []).append(rule)
            else:
                self._literal.setdefault((kind, name), []).append(rule)
        self._lengths = {
            kind: sorted({len(name) for name in self._prefixes[kind]}, reverse=True)
            for kind in ResourceKind
        }

    def about(self, ask: Ask) -> list[Rule]:
        """Returns those that say something of a question, the most special first."""
        kind, name = ask.kind, ask.name
        if not name:
            candidates = self._all[kind]
        else:
            candidates = list(self._literal.get((kind, name), ()))
            prefixes = self._prefixes[kind]
            for length in self._lengths[kind]:
                if length <= len(name):
                    candidates += prefixes.get(name[:length], ())
        return [rule for rule in candidates if rule.decides(ask)]


class Grants:
    """What one user may do.

    Args:
        user: the user; None: there is none of that name.
        rules: those of the user and its roles.
    """

    __slots__ = ("_answers", "_rules", "_user")

    def __init__(self, user: User | None, rules: Iterable[Rule]) -> None:
        self._user = user
        self._rules = _Found(rules)
        self._answers: dict[Ask, bool] = {}

    def allows(self, ask: Ask) -> bool:
        """Returns whether something is allowed."""
        answer = self._answers.get(ask)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[ask] = self.explain(ask).allowed
        return answer

    def explain(self, ask: Ask) -> Ruling:
        """Returns what is decided, and by which rule."""
        user = self._user
        if user is None:
            return Ruling(allowed=False, rule=None, reason="there is no such user")
        if user.is_disabled:
            return Ruling(allowed=False, rule=None, reason="the user is disabled")
        if is_audit_change(ask):
            return Ruling(allowed=False, rule=None, reason="the broker alone changes its audit")
        if is_open(ask):
            reason = "each user may do this: it shows no message and changes none"
            return Ruling(allowed=True, rule=None, reason=reason)
        if user.is_admin:
            return Ruling(allowed=True, rule=None, reason="the user is an administrator")
        about = self._rules.about(ask)
        for allows in (False, True):
            for rule in about:
                if rule.allows is allows:
                    return Ruling(allows, rule, f"this rule decides: {rule}")
        return Ruling(allowed=False, rule=None, reason="no rule allows it")


class Policy:
    """The users and rules of one moment.

    Args:
        users: by their names.
        rules: of all of them, and of roles.
        version: one more with each change.
    """

    def __init__(
        self, users: Mapping[str, User], rules: Iterable[Rule], *, version: int = 0
    ) -> None:
        self.users = users
        self.version = version
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.subject, []).append(rule)
        self._grants: dict[str, Grants] = {}

    def grants(self, name: str) -> Grants:
        """Returns what a user may do."""
        found = self._grants.get(name)
        if found is None:
            user = self.users.get(name)
            subjects = [name, *map(role_subject, user.roles)] if user else []
            rules = [rule for subject in subjects for rule in self._rules.get(subject, ())]
            found = Grants(user, rules)
            if user is not None:
                self._grants[name] = found
        return found
