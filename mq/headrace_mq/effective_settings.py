"""
The settings of a broker that runs: each with its value, its default and what gave it, and no secret.

    store.flush   interval   always   /etc/headrace/broker.toml

Used by the broker and its replicas, which answer DESCRIBE_SETTINGS with it. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from headrace_mq.protocol.limits import SettingDescription, SettingsAnswer
from headrace_mq.settings import BrokerSettings

__all__ = ["DEFAULT", "NO_SOURCES", "Sources", "described", "text_of", "without_secrets"]

# What gave a setting, by its name such as `store.flush`: a file, a variable or an option.
Sources = Mapping[str, str]
NO_SOURCES: Final[Sources] = {}
DEFAULT: Final = "default"
# Of a program that makes its broker itself.
_PROGRAM: Final = "program"


def described(settings: BrokerSettings, sources: Sources) -> SettingsAnswer:
    """Returns all settings of a broker, those of its parts with the name of the part before a dot.

    Args:
        settings: of the broker.
        sources: what gave those that are no defaults.
    """
    return SettingsAnswer(
        [
            SettingDescription(
                name,
                text_of(value),
                "" if default is msgspec.NODEFAULT else text_of(default),
                sources.get(name, DEFAULT if value == default else _PROGRAM),
            )
            for name, value, default in _all(settings, "")
        ]
    )


# As libpq has it: blanks around the sign are allowed.
_NAMES_PASSWORD: Final = re.compile(r"pass(word|wd|phrase)?\s*=", re.IGNORECASE)


def _all(part: msgspec.Struct, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields name, value and default; a part that the broker has not, such as an archive, has no settings."""
    own, parts = [], []
    for each in msgspec.structs.fields(part):
        value = getattr(part, each.name)
        if isinstance(value, msgspec.Struct):
            parts.append((each.name, value))
        elif prefix or each.name not in _PARTS:
            own.append((f"{prefix}{each.name}", value, each.default))
    yield from own
    for name, value in parts:
        yield from _all(value, f"{name}.")


_PARTS: Final = frozenset({"store", "archive", "group", "names"})


def text_of(value: Any) -> str:
    """Returns the value of a setting as a person reads it; an address without secrets."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(map(text_of, value))
    return without_secrets(value) if isinstance(value, str) else str(value)


def without_secrets(text: str) -> str:
    """Returns an address without the user, the password and the options that it may have; other texts as they are.

    Of a text that names a password, such as `host=db password=x`, nothing is shown.
    """
    scheme, mark, rest = text.partition("://")
    if not mark:
        return "…" if _NAMES_PASSWORD.search(text) else text
    before, _, place = rest.rpartition("@")
    # A password may have any characters, and so may an option: then no part of it is sure to be none of them.
    return f"{scheme}://…" if "?" in before else f"{scheme}://{place.partition('?')[0]}"
