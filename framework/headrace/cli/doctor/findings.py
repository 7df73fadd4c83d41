"""
A finding of `headrace doctor`: one check, how it ended, what was found, and what to do about it.

    warning  clock of the broker  3.2 s ahead of this machine  let a time server set both clocks

Used by the rules, which make findings, and by the command, which prints them. Pure.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "EXIT_STATUS",
    "Finding",
    "State",
    "failed",
    "of_sentence",
    "ok",
    "shown",
    "split",
    "warning",
    "worst",
]

State = Literal["ok", "warning", "failed"]

# The exit status of a command whose worst finding has this state.
EXIT_STATUS: Final[Mapping[State, int]] = MappingProxyType({"ok": 0, "warning": 1, "failed": 2})
# Where the advice of a sentence of ours begins.
_MARKS: Final = ("; ", ": check ")
# What addresses of brokers begin with; their options may be secrets.
_BROKERS: Final = frozenset({"kafka", "tcp", "tls"})


class Finding(NamedTuple):
    """How one check ended.

    Attributes:
        state: "failed": something does not work; "warning": it will not, or not well; "ok".
        name: of what was looked at.
        finding: what was found.
        advice: what to do; empty where nothing is to be done.
    """

    state: State
    name: str
    finding: str
    advice: str = ""


def ok(name: str, finding: str) -> Finding:
    """A check that found nothing to do."""
    return Finding("ok", name, finding)


def warning(name: str, finding: str, advice: str) -> Finding:
    """Something that will not work, or does not work well."""
    return Finding("warning", name, finding, advice)


def failed(name: str, finding: str, advice: str) -> Finding:
    """Something that does not work."""
    return Finding("failed", name, finding, advice)


def of_sentence(state: State, name: str, sentence: str, otherwise: str = "") -> Finding:
    """Makes a finding of the sentence of an error, which ends with what to do; `otherwise` if it does not."""
    finding, advice = split(sentence)
    return Finding(state, name, finding, advice or otherwise)


def split(sentence: str) -> tuple[str, str]:
    """Divides the sentence of an error into what happened and what to do; what stands in brackets is not divided."""
    depth = 0
    for place, character in enumerate(sentence):
        depth += (character in "([") - (character in ")]")
        for mark in _MARKS:
            if depth <= 0 and sentence.startswith(mark, place):
                return sentence[:place], sentence[place + 2 :]
    return sentence, ""


def shown(value: Any) -> Any:
    """Returns a value as it may be printed: an address or a URL without its password and its options."""
    scheme, mark, rest = value.partition("://") if isinstance(value, str) else ("", "", "")
    if not mark:
        return value
    if scheme in _BROKERS:
        return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
    from sqlalchemy.engine import make_url  # takes long to load
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        return f"{scheme}://…"
    if url.password is None and not url.query:
        return value
    return url.set(query={}).render_as_string(hide_password=True)


def worst(findings: Iterable[Finding]) -> State:
    """Returns the worst state of the findings; "ok" for none."""
    return max((each.state for each in findings), key=EXIT_STATUS.__getitem__, default="ok")
