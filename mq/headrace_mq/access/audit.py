"""
The audit: what one entry of it says, and the topic that holds them. PURE.

    queue 0   changes             what was created, changed, deleted or moved by a user that may administer, done or failed
    queue 1   logins              who got in
    queue 2   refusals            logins that failed, and requests that were refused
    queue 3   changes by others   the same as changes, by a user that may not administer

An entry is one message; its body is JSON, so any consumer can read it. It holds no password and no body of a message.

Used by the broker, which alone writes entries, and by what reads them.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from headrace_mq.errors import DataCorrupt

__all__ = [
    "AUDIT_ALONE",
    "AUDIT_TOPIC",
    "CHANGES",
    "CHANGES_BY_OTHERS",
    "KINDS",
    "LEFT_OUT",
    "LOGINS",
    "REFUSALS",
    "TEXT_BYTES_MAX",
    "AuditEntry",
    "cut",
]

AUDIT_TOPIC: Final = "%AUDIT%"
# What clients read that try to change it.
AUDIT_ALONE: Final = (
    f"{AUDIT_TOPIC} is the broker's audit: clients read it, and the broker alone changes it"
)
# Numbers of its queues: a flood of one kind does not push out the others.
CHANGES, LOGINS, REFUSALS, CHANGES_BY_OTHERS = range(4)
KINDS = ("changes", "logins", "refusals", "changes by others")
# The outcome of an entry that stands for those that are missing.
LEFT_OUT = "left out"
# Of one text of an entry as JSON: names of clients and resources may be far longer. So an entry takes less than 2 KiB
# in the store.
TEXT_BYTES_MAX = 500
_ELLIPSIS = "…"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the audit.

    Attributes:
        at_ms: when, in milliseconds since 1970 UTC, by the broker's clock.
        user: who: the user that has logged in, or the subject of its certificate; empty where neither is known.
        action: what: the request, such as "create_topic"; or "login".
        resource: to what, such as "topic:orders", "group:kitchen", "user:ann", "cluster".
        address: where from: host and port of the client.
        outcome: "done", "failed" (the broker could not), "refused" (the user may not), or "left out".
        detail: what else there is to know: new values, or why it failed.
        more: how many like this one have no entry of their own.
    """

    at_ms: int
    user: str = ""
    action: str
    resource: str = ""
    address: str = ""
    outcome: str
    detail: str = ""
    more: int = 0

    def encode(self) -> bytes:
        """Returns the body of its message."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes | memoryview) -> "AuditEntry":
        """Reads the body of a message. Raises DataCorrupt: it is no entry."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise DataCorrupt(
                f"a message of {AUDIT_TOPIC} is no entry of the audit: {error}"
            ) from error

    def is_about(self, user: str) -> bool:
        """Returns whether a user did this, or it was done to that user."""
        return user == self.user or self.resource == f"user:{user}"


def cut(text: str) -> str:
    """Returns a text that takes at most TEXT_BYTES_MAX bytes in an entry; one that was cut ends with an ellipsis."""
    head = text[:TEXT_BYTES_MAX]  # no character takes less than a byte
    if len(head) == len(text) and _size(text) <= TEXT_BYTES_MAX:
        return text
    room = TEXT_BYTES_MAX - len(_ELLIPSIS.encode())
    fitting = bisect_right(range(len(head) + 1), room, key=lambda count: _size(head[:count])) - 1
    return head[:fitting] + _ELLIPSIS


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) - len('""')
