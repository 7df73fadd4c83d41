"""
The console's words in other languages: English is in the templates, and a file has what it becomes.

    t("Topics")  ─▶  en: Topics, zh: 主题

A sentence of the broker stays in English: it names options and commands. Used by the pages; reads `languages`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["CATALOGUE", "language_of", "said"]

_FILE: Final = Path(__file__).parent / "languages" / "zh.json"
CATALOGUE: Final[Mapping[str, str]] = MappingProxyType(json.loads(_FILE.read_text("utf-8")))


def said(text: str, language: str, **values: object) -> str:
    """Returns a text in a language, with its values.

    Args:
        text: in English, with names in braces.
        language: `en` or `zh`.
        values: what stands for the names.
    """
    found = CATALOGUE.get(text, text) if language == "zh" else text
    return found.format(**values) if values else found


def language_of(accepted: str) -> str:
    """Returns the language of a browser, `zh` or `en`.

    Args:
        accepted: its header Accept-Language, the language that it likes best first.
    """
    for each in accepted.split(","):
        name = each.partition(";")[0].strip().lower()
        if name.startswith("zh"):
            return "zh"
        if name.startswith("en"):
            return "en"
    return "en"
