"""
A condition over messages, from its text.

Sits between: consumers and brokers, and the parser. Pure.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace_mq.filters.conditions import Messages
from headrace_mq.filters.grammar import parse
from headrace_mq.filters.tokens import InvalidFilter

__all__ = ["Filter", "InvalidFilter", "filters_of"]

_NO_HEADERS: Mapping[str, str] = {}


class Filter:
    """A compiled condition, such as `price > 10 AND region IN ('EU', 'US') AND note IS NOT NULL`.

    Args:
        text: SQL92: `=`, `<>`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `LIKE`, `IS NULL`, `AND`,
            `OR`, `NOT`, numbers, texts in single quotes, TRUE and FALSE. Names are headers';
            `_key` and `_tag` are the message's own.

    Attributes:
        text: as given.
        asks_for_keys: whether keys can make a difference.
        tags: the only tags that a selected message can have, or None for any.

    Raises:
        InvalidFilter: the text cannot be understood, or is too long or too deep.
    """

    __slots__ = ("_ask", "asks_for_keys", "tags", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.asks_for_keys = "_key" in text
        self._ask, self.tags = parse(text)

    def selects(self, headers: Mapping[str, str], key: str = "", tag: str = "") -> bool:
        """Whether one message is selected: unknown is not."""
        return self._ask(Messages([headers], [key], [tag])) == [True]

    def places(
        self,
        count: int,
        headers: Sequence[Mapping[str, str]],
        keys: Sequence[str],
        tags: Sequence[str],
    ) -> list[int]:
        """The places of the selected ones among `count` messages; an empty column is of defaults."""
        if self.tags is not None and self.tags.isdisjoint(tags):
            return []
        answers = self._ask(
            Messages(headers or [_NO_HEADERS] * count, keys or [""] * count, tags or [""] * count)
        )
        if True not in answers:
            return []
        return [place for place, said in enumerate(answers) if said]


def filters_of(topics: Collection[str] | Mapping[str, str]) -> dict[str, Filter]:
    """Compiles the conditions of topics that have one; raises InvalidFilter as `Filter` does."""
    if not isinstance(topics, Mapping):
        return {}
    return {topic: Filter(text) for topic, text in topics.items() if text}
