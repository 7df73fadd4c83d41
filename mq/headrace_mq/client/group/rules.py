"""
What an operator set for a group, as a member learned it from the answer to its last heartbeat.

Written by `membership`. Used by `Consumer` and `retries.retries`, which keep to it. Pure, but for a
log line.
"""

from headrace_mq._runtime.log import get_logger
from headrace_mq.protocol.bodies import GroupAnswer

__all__ = ["CurrentGroupRules"]

_log = get_logger(__name__)


class CurrentGroupRules:
    """The rules of one group.

    Args:
        group: whose.

    Attributes:
        consume: False: the group is paused, and the broker gives it no messages.
        retries: how often a failed record is tried again; None: not set.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self.consume = True
        self.retries: int | None = None

    def hear(self, answer: GroupAnswer) -> None:
        """Takes the rules from an answer; an older broker sends none."""
        self.retries = answer.retries if answer.retries >= 0 else None
        if answer.consume == self.consume:
            return
        self.consume = answer.consume
        if self.consume:
            _log.info("the group is not paused any more; it gets messages again", group=self._group)
        else:
            _log.warning(
                "the group is paused by an operator and gets no messages: `headrace group set GROUP"
                " --consume on` lets it go on",
                group=self._group,
            )
