"""
What differs between two states, in words.

    {"balance": 5, "seen": ["t1"]}  and  {"balance": 7, "seen": ["t1", "t2"], "closed": true}
      ─▶ balance was 5 and is 7 / closed is new: true / seen.1 is new: "t2"

Used by the console and by `headrace aggregate compare`. Pure.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

__all__ = ["CHANGES_MAX", "Change", "changes_between"]

# Changes that one comparison names.
CHANGES_MAX: Final = 500
# Characters of a value in a sentence.
_SHOWN_MAX: Final = 200
_GONE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference.

    Attributes:
        place: names and numbers that lead to it, with dots between; empty: the whole state.
        kind: a value is new, gone or another one.
        before: the value before; None where it is new.
        after: the value after; None where it is gone.
    """

    place: str
    kind: Literal["new", "gone", "changed"]
    before: Any
    after: Any

    @property
    def sentence(self) -> str:
        """The difference in words."""
        place = self.place or "the state"
        if self.kind == "new":
            return f"{place} is new: {_shown(self.after)}"
        if self.kind == "gone":
            return f"{place} is gone: it was {_shown(self.before)}"
        return f"{place} was {_shown(self.before)} and is {_shown(self.after)}"


def changes_between(before: Any, after: Any) -> list[Change]:
    """Returns what differs between two states of JSON values, `CHANGES_MAX` at most, by name.

    Args:
        before: the earlier one.
        after: the later one.
    """
    return list(islice(_differences(before, after, ""), CHANGES_MAX))


def _differences(before: Any, after: Any, place: str) -> Iterator[Change]:
    if before is _GONE:
        yield Change(place=place, kind="new", before=None, after=after)
    elif after is _GONE:
        yield Change(place=place, kind="gone", before=before, after=None)
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _differences(
                before.get(name, _GONE), after.get(name, _GONE), _below(place, name)
            )
    elif isinstance(before, list) and isinstance(after, list):
        yield from _in_lists(before, after, place)
    # In Python True is 1.
    elif type(before) is not type(after) or before != after:
        yield Change(place=place, kind="changed", before=before, after=after)


def _in_lists(before: list[Any], after: list[Any], place: str) -> Iterator[Change]:
    """Leaves out what both begin with and both end with, and compares the rest in its order."""
    first, end = 0, 0
    shorter = min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    while end < shorter - first and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[first : len(before) - end], after[first : len(after) - end]
    for number in range(max(len(old), len(new))):
        yield from _differences(
            old[number] if number < len(old) else _GONE,
            new[number] if number < len(new) else _GONE,
            _below(place, str(first + number)),
        )


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
