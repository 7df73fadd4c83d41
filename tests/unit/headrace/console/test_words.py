"""The catalogue of words has each text of the templates, and knows a browser's language."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

import headrace.console
from headrace.console.words import CATALOGUE, language_of, said

TEMPLATES = Path(headrace.console.__file__).parent / "templates"
LANGUAGES = TEMPLATES.with_name("languages")


def texts(tree: nodes.Template) -> Iterator[str]:
    """What a template gives to `t`: its texts, and those of lists whose items it gives to it."""
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "t":
            yield from (one.value for one in call.args if isinstance(one, nodes.Const))
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "card":
            title, _, *below = call.args
            assert isinstance(title, nodes.Const)
            yield title.value
            for each in below:
                yield from (one.items[1].value for one in each.find_all(nodes.Tuple))  # type: ignore[attr-defined]  # pairs of texts
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.iter, nodes.List):
            yield from (one.items[-1].value for one in loop.iter.find_all(nodes.Tuple))  # type: ignore[attr-defined]  # the last is the label


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB", "en"),
        ("de,zh;q=0.5", "zh"),
        ("de", "en"),
        ("", "en"),
    ],
)
def test_the_language_is_the_first_that_the_console_knows(accepted: str, language: str) -> None:
    assert language_of(accepted) == language


def test_a_text_keeps_its_values() -> None:
    assert said("Topic {name}", "en", name="a{b}") == "Topic a{b}"


def test_a_text_without_a_translation_stays_english() -> None:
    assert said("no such text", "zh") == "no such text"


def test_every_text_of_a_page_has_a_translation_and_no_other_has() -> None:
    environment = Environment(autoescape=True)
    found = {
        text
        for page in TEMPLATES.glob("*.html")
        for text in texts(environment.parse(page.read_text(encoding="utf-8")))
        if text
    }
    # Words of the broker, and heads of the tables that say what a change does.
    found |= {"transient", "forever", "compact", "topic", "queue", "from", "to", "delivered again", "skipped", "messages", "hindered, because it"}  # fmt: skip
    # Sources and units of settings.
    found |= {"default", "program", "%", "milliseconds", "microseconds", "bytes", "bytes per second", "messages per second", "per minute", "per second"}  # fmt: skip
    assert sorted(found - CATALOGUE.keys()) == []
    assert sorted(CATALOGUE.keys() - found) == []


def test_a_translation_has_the_same_values() -> None:
    for text, translated in CATALOGUE.items():
        assert sorted(part.partition("}")[0] for part in text.split("{")[1:]) == sorted(
            part.partition("}")[0] for part in translated.split("{")[1:]
        ), text


@pytest.mark.parametrize("path", sorted(LANGUAGES.glob("*.json")), ids=lambda path: path.name)
def test_a_file_of_a_language_has_each_text_once(path: Path) -> None:
    keys = Counter[str]()
    # A JSON reader keeps the last one of a key and says nothing.
    json.loads(
        path.read_text(encoding="utf-8"),
        object_pairs_hook=lambda pairs: keys.update(key for key, _ in pairs),
    )
    assert len(keys) > 100
    assert [key for key, count in keys.items() if count > 1] == []
