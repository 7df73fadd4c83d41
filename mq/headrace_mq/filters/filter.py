"""
A condition over messages, compiled from its text.

Used by consumers, by the broker and by `protocol.filter`. Pure.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from headrace_mq.filters.conditions import Answers, Messages
from headrace_mq.filters.grammar import names, parse
from headrace_mq.filters.tokens import InvalidFilter

__all__ = ["Filter", "InvalidFilter", "filters_of"]

# Answers kept of one condition, and the characters of what each is the answer to. A few hundred
# prices and regions are what most topics have; texts that never come again are not worth keeping.
_KNOWN_MAX = 1_024
_KNOWN_CHARACTERS_MAX = 64
# To keep an answer costs as much as it saves for so many messages: where more than one of so many
# is new, nothing is looked up and nothing kept.
_LEARNING_MESSAGES = 8
_CREDIT_MAX = _KNOWN_MAX * _LEARNING_MESSAGES

# To search a column for so many texts is quicker than to compute a hash of each of its entries.
_SEARCHED_MAX = 3

Column = Sequence[str | None]
T = TypeVar("T")


class Filter:
    """A compiled condition, such as `price > 10 AND region IN ('EU', 'US') AND note IS NOT NULL`.

    Args:
        text: SQL92: `=`, `<>`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `LIKE`, `IS NULL`, `AND`,
            `OR`, `NOT`, numbers, texts in single quotes, TRUE and FALSE. Names are headers';
            `_key` and `_tag` are the message's own.

    Attributes:
        text: as given.
        headers: the names of the headers that can make a difference.
        asks_for_keys: whether keys can make a difference.
        asks_for_tags: whether tags can.
        tags: the only tags that a selected message can have, or None for any.
        tags_decide: whether all that have one of them are selected.
        words: texts of which each selected message has at least one among its headers, or None.
        bounds: between which each selected message has a number in one of its headers, or None.

    Raises:
        InvalidFilter: the text cannot be understood, or is too long or too deep.
    """

    __slots__ = (
        "_ask", "_credit", "_refused", "_selected", "asks_for_keys", "asks_for_tags", "bounds",
        "headers", "tags", "tags_decide", "text", "words",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self.text = text
        self._ask, self.tags, self.words, self.bounds, self.tags_decide = parse(text)
        self.headers, own = names(text)
        self.asks_for_keys = "_key" in own
        self.asks_for_tags = "_tag" in own
        # What was asked before: the same few values come again in every batch.
        self._refused: set[Hashable] = set()
        self._selected: set[Hashable] = set()
        self._credit = _CREDIT_MAX

    def selects(self, headers: Mapping[str, str], key: str = "", tag: str = "") -> bool:
        """Whether one message is selected: unknown is not."""
        return self.places(1, [headers], [key], [tag]) == [0]

    def places(
        self,
        count: int,
        headers: Sequence[Mapping[str, str]],
        keys: Sequence[str],
        tags: Sequence[str],
    ) -> list[int]:
        """The places of the selected ones among `count` messages; an empty column is of defaults."""
        columns: list[Column] = [[one.get(name) for one in headers] for name in self.headers]
        return self.places_in(count, columns, keys, tags)

    def places_in(
        self, count: int, headers: Sequence[Column], keys: Sequence[str], tags: Sequence[str]
    ) -> list[int]:
        """The same, with one column for each name in `headers`, None where a message lacks it."""
        if self.tags is None or not tags:
            return self._places_among(count, headers, keys, tags)
        # Only those with one of its tags are asked about.
        places = _places_of(self.tags, tags)
        if self.tags_decide:
            return places
        chosen = self._places_among(
            len(places),
            [_entries(column, places) for column in headers],
            _entries(keys, places),
            _entries(tags, places),
        )
        return [places[place] for place in chosen]

    def _places_among(
        self, count: int, headers: Sequence[Column], keys: Sequence[str], tags: Sequence[str]
    ) -> list[int]:
        columns: list[Column] = [column or [None] * count for column in headers]
        if self.asks_for_keys:
            columns.append(keys or [""] * count)
        if self.asks_for_tags:
            columns.append(tags or [""] * count)
        self._credit = min(self._credit + count, _CREDIT_MAX)
        if self._credit < 0 or not columns:
            return [place for place, one in enumerate(self._said(count, columns)) if one is True]
        rows: Sequence[Hashable]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        refused = self._refused
        # Most columns of a rare selection end here.
        if refused.issuperset(rows):
            return []
        places = [place for place, row in enumerate(rows) if row not in refused]
        unknown = {rows[place] for place in places} - self._selected
        if unknown:
            refused = self._refused_of(list(unknown), is_single=len(columns) == 1)
            places = [place for place in places if rows[place] not in refused]
        return places

    def _said(self, count: int, columns: Sequence[Column]) -> Answers:
        """Asks the condition about columns of headers, keys and tags."""
        left = list(columns)
        tags = left.pop() if self.asks_for_tags else ()
        keys = left.pop() if self.asks_for_keys else ()
        return self._ask(Messages(count, dict(zip(self.headers, left, strict=True)), keys, tags))

    def _refused_of(self, rows: list[Any], *, is_single: bool) -> set[Hashable]:
        """Asks the condition about rows that it does not know, and keeps what it says."""
        self._credit -= _LEARNING_MESSAGES * len(rows)
        columns: list[Any] = [rows] if is_single else list(zip(*rows, strict=True))
        said = self._said(len(rows), columns)
        refused = {row for row, one in zip(rows, said, strict=True) if one is not True}
        if len(rows) <= _KNOWN_MAX:
            if len(self._refused) + len(self._selected) + len(rows) > _KNOWN_MAX:
                self._refused = set()
                self._selected = set()
            # All of them or none: to look at each by itself takes longer than to ask again.
            texts = chain.from_iterable(columns)
            if max(map(len, filter(None, texts)), default=0) <= _KNOWN_CHARACTERS_MAX:
                self._refused |= refused
                self._selected.update(row for row in rows if row not in refused)
        return refused


def _entries(column: Sequence[T], places: Sequence[int]) -> list[T]:
    return [column[place] for place in places] if column else []


def _places_of(texts: Collection[str], column: Sequence[str]) -> list[int]:
    """Where a column has one of these texts."""
    if len(texts) > _SEARCHED_MAX:
        return [place for place, one in enumerate(column) if one in texts]
    places = []
    for text in texts:
        at = -1
        for _ in range(column.count(text)):
            at = column.index(text, at + 1)
            places.append(at)
    return sorted(places)


def filters_of(topics: Collection[str] | Mapping[str, str]) -> dict[str, Filter]:
    """Compiles the conditions of topics that have one; raises InvalidFilter as `Filter` does."""
    if not isinstance(topics, Mapping):
        return {}
    return {topic: Filter(text) for topic, text in topics.items() if text}
