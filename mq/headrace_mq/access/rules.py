"""
One rule: a user or role is allowed something, or it is denied. PURE.

    allow ann publish topic:orders.*
    deny role:guests * topic:secret

Used by the policy, which finds the rules of a user; the broker keeps them.
"""

from typing import NamedTuple, Self

from headrace_mq.access.resources import Action, Ask, Pattern
from headrace_mq.access.users import ROLE_PREFIX, check_user_name
from headrace_mq.errors import InvalidArgument

__all__ = ["ANY_ACTION", "Rule"]

# In a rule: all actions.
ANY_ACTION = "*"


class Rule(NamedTuple):
    """A rule.

    Attributes:
        subject: the name of a user, or `role:` and that of a role.
        action: what it is about; `ANY_ACTION` for all.
        pattern: the resources it is about.
        allows: whether it allows that, or denies it.
    """

    subject: str
    action: str
    pattern: Pattern
    allows: bool

    @classmethod
    def parse(cls, subject: str, action: str, resource: str, *, allows: bool) -> Self:
        """Makes a rule from its words.

        Raises:
            InvalidArgument: one of them has no meaning; the sentence says which have.
        """
        check_user_name(subject.removeprefix(ROLE_PREFIX))
        actions = [ANY_ACTION, *Action]
        if action not in actions:
            raise InvalidArgument(f"an action is one of {', '.join(actions)}, not {action!r}")
        return cls(subject, action, Pattern.parse(resource), allows)

    def decides(self, ask: Ask) -> bool:
        """Returns whether it says anything of a question.

        Those that may do anything else to a resource may read what it is, so to allow one allows the other.
        """
        if not self.pattern.covers(ask.kind, ask.name):
            # To deny a part is to deny the whole.
            whole = ask.name == "" and ask.kind == self.pattern.kind and not self.allows
            if not whole:
                return False
        if self.action in {ANY_ACTION, ask.action}:
            return True
        return self.allows and ask.action == Action.READ

    @property
    def key(self) -> tuple[str, str, Pattern]:
        """Of two rules with the same key, the later one replaces the other."""
        return self.subject, self.action, self.pattern

    def __str__(self) -> str:
        return f"{'allow' if self.allows else 'deny'} {self.subject} {self.action} {self.pattern}"
