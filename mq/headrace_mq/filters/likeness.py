"""
LIKE patterns: `%` stands for any characters or none, `_` for one.

The pieces between the `%` are searched from left to right, each once. So the time is at most the
length of the text times that of the pattern. A regular expression with many `.*` has no such bound,
and any client that may connect can send a pattern to the broker.

Used by `grammar`. Pure.
"""

import re
from collections.abc import Callable

__all__ = ["compile_pattern"]


def compile_pattern(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Returns what tells whether a whole text is like the pattern.

    Args:
        pattern: with `%` and `_`.
        escape: the character that makes the next one stand for itself, or none.

    Raises:
        ValueError: nothing follows the escape character, or it is more than one.
    """
    if len(escape) > 1:
        raise ValueError("ESCAPE takes one character")
    pieces, lengths = [""], [0]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, "")
            if not literal:
                raise ValueError("nothing follows the escape character")
            pieces[-1] += re.escape(literal)
        elif character == "%":
            pieces.append("")
            lengths.append(0)
            continue
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
        lengths[-1] += 1
    sought = [re.compile(piece, re.DOTALL) for piece in pieces]
    first, last = sought[0], sought[-1]
    if len(sought) == 1:
        return lambda text: first.fullmatch(text) is not None

    def matches(text: str) -> bool:
        start = first.match(text)
        if start is None:
            return False
        at = start.end()
        for piece in sought[1:-1]:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        end_at = len(text) - lengths[-1]
        return end_at >= at and last.fullmatch(text, end_at) is not None

    return matches
