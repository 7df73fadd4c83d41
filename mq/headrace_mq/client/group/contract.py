"""
What all members of a group must do alike, in words that the broker compares.

A member with another filter acknowledges messages that others want. One with another allocation leaves
queues without an owner. One with other retries sends to topics that the others do not read. So each
member sends the broker these settings in words, and the broker refuses a member that differs.

Used by `Consumer` and `RetryingConsumer`. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import google_crc32c

from headrace_mq.client.group.allocation import Strategy
from headrace_mq.settings import ConsumerSettings, RetrySettings

__all__ = ["check_wanted", "contract_of", "retries_told"]

# Of a longer condition the contract has the beginning, and a checksum of the whole.
TOLD_CHARACTERS_MAX: Final = 200


def contract_of(
    topics: Sequence[str] | Mapping[str, str],
    *,
    settings: ConsumerSettings,
    strategy: Strategy | None,
) -> dict[str, str]:
    """Returns how a member works, in words, by subject.

    Args:
        topics: with their conditions, if there are any.
        settings: of the consumer.
        strategy: the application's own way to divide queues, instead of that of the settings.
    """
    conditions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, "")
    return {
        "the allocation": settings.allocation if strategy is None else _name(strategy),
        "the handling": settings.handling,
        "the retries": "in place",
        **{f"the filter of topic {topic}": _cut(text) for topic, text in conditions.items()},
    }


def _name(strategy: Strategy) -> str:
    return str(getattr(strategy, "__qualname__", type(strategy).__qualname__))


def check_wanted(
    group: str,
    topics: Sequence[str] | Mapping[str, str],
    settings: ConsumerSettings | None,
    *,
    keeps_offsets: bool,
) -> None:
    """Raises ValueError for what no consumer can be: of no group, of no topics, with two places of offsets."""
    if not group or isinstance(topics, str) or not topics:
        raise ValueError("a consumer needs the name of its group and a list of topics")
    if keeps_offsets and settings is not None and settings.broadcast_file is not None:
        raise ValueError("offsets are kept in broadcast_file or by load_offsets; choose one")


def retries_told(retry: RetrySettings) -> str:
    """Returns in words how a consumer retries that does it by topics."""
    return _cut(f"at most {retry.retries_max}, after {' '.join(retry.levels)}")


def _cut(text: str) -> str:
    # White space says nothing in a condition, and people break long ones into lines.
    words = " ".join(text.split())
    if len(words) <= TOLD_CHARACTERS_MAX:
        return words
    return f"{words[:TOLD_CHARACTERS_MAX]}… ({google_crc32c.value(words.encode()):08x})"
