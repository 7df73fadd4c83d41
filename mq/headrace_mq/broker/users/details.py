"""
What the audit says of a request besides its resource: the values in its body, in words. PURE.

Used by `guard`. No body in this table holds a password, or the body of a message.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    DeleteQueues,
    FreezeQueues,
    ResetOffsets,
)
from headrace_mq.protocol.bodies import Body, CreateTopic, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import HandOverTo, NoteChange, SetBacklogLimit, SetGroup, SetQuota
from headrace_mq.protocol.releases import ReleaseMessages
from headrace_mq.protocol.scheduled import CancelScheduled

__all__ = ["DETAILED", "detail_of"]

DETAILED: Mapping[int, type[Body]] = MappingProxyType(
    {
        RequestCode.CREATE_TOPIC: CreateTopic,
        RequestCode.FREEZE_QUEUES: FreezeQueues,
        RequestCode.DELETE_QUEUES: DeleteQueues,
        RequestCode.RESET_OFFSETS: ResetOffsets,
        RequestCode.CLONE_OFFSETS: CloneOffsets,
        RequestCode.DELETE_GROUP: DeleteGroup,
        RequestCode.CANCEL_SCHEDULED: CancelScheduled,
        RequestCode.SET_QUOTA: SetQuota,
        RequestCode.SET_BACKLOG_LIMIT: SetBacklogLimit,
        RequestCode.SET_GROUP: SetGroup,
        RequestCode.RELEASE_MESSAGES: ReleaseMessages,
        RequestCode.HAND_OVER: HandOverTo,
        RequestCode.NOTE_CHANGE: NoteChange,
    }
)
# What the resource says already.
_NAMED = frozenset({"topic", "group", "dry_run"})


def detail_of(code: int, body: memoryview) -> str | None:
    """Returns the values in the body of a request, as `name=value`; None: it only asks what would happen."""
    kind = DETAILED.get(code)
    if kind is None:
        return ""
    request = decode(kind, body)
    if getattr(request, "dry_run", False):
        return None
    return " ".join(_words(request))


def _words(request: Body) -> list[str]:
    found = []
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if isinstance(value, Body):
            found += _words(value)
        elif name not in _NAMED and value not in ("", []):
            found.append(f"{name}={value}")
    return found
