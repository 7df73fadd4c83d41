"""
All verbs about a broker by their names; those about an application are in `application`, those about alarms in `alarm`.

Used by the pages and the API, which offer these and no others; a test compares them with the command line.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headrace.console.problems import Mistake
from headrace.console.verbs.access import ACCESS
from headrace.console.verbs.broker import BROKER
from headrace.console.verbs.group import GROUPS
from headrace.console.verbs.message import MESSAGES
from headrace.console.verbs.topic import TOPICS
from headrace.console.verbs.verb import Verb

__all__ = ["VERBS", "described", "verb_at"]

VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {each.name: each for each in (*BROKER, *TOPICS, *GROUPS, *MESSAGES, *ACCESS)}
)


def verb_at(verbs: Mapping[str, Verb], noun: str, word: str) -> Verb:
    """Returns the verb of two words of an address.

    Args:
        verbs: all that there are.
        noun: such as `topic`.
        word: such as `list`.

    Raises:
        Mistake: there is none.
    """
    found = verbs.get(f"{noun} {word}")
    if found is None:
        raise Mistake(f"there is no verb {noun[:40]} {word[:40]}; /api lists all")
    return found


def described(verbs: Mapping[str, Verb]) -> list[dict[str, object]]:
    """Returns what /api says of each verb: its name, its method and its fields."""
    return [
        {
            "name": each.name,
            "method": "POST" if each.changes else "GET",
            "path": f"/api/{each.path}",
            "fields": [
                {"name": one.name, "kind": one.kind, "choices": list(one.choices)}
                for one in each.fields
            ],
        }
        for each in verbs.values()
    ]
