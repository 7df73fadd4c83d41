"""Names say what a thing is; a package says between what it sits."""

import ast
import re
from typing import Any

import pytest

BANNED = re.compile(
    r"(?:^|_)(?:manager|service|helpers?|utils?|impl|default|common|base|abstract)(?:$|_)"
)
# The ports are the base of their adapters, by name too: `stores.base`, `transports.base`.
PORTS = {"headrace.stores.base", "headrace.transports.base"}
# A term of the domain: a process that lasts, and reacts to events with commands.
PROCESS_MANAGER = re.compile(r"process_manager")


def banned_words(name: str) -> list[str]:
    """Returns the banned words in a file's or a class's name."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return BANNED.findall(PROCESS_MANAGER.sub("", snake))


def test_no_file_has_a_name_that_says_nothing(modules: Any) -> None:
    named = {m.where: m.name.rpartition(".")[2] for m in modules if m.name not in PORTS}
    assert [where for where, name in named.items() if banned_words(name)] == []


def test_no_class_has_a_name_that_says_nothing(modules: Any) -> None:
    named = [
        f"{module.where}: {node.name}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and banned_words(node.name)
    ]
    assert named == []


def test_every_package_says_between_what_it_sits(modules: Any) -> None:
    silent = [
        module.where
        for module in modules
        if module.is_package and "Sits between:" not in (ast.get_docstring(module.tree) or "")
    ]
    assert silent == []


@pytest.mark.parametrize(
    "name", ["TopicManager", "string_utils", "BaseStore", "DefaultSerializer", "CommandService"]
)
def test_each_banned_word_is_found(name: str) -> None:
    assert banned_words(name) != []


@pytest.mark.parametrize("name", ["ProcessManager", "ProcessManagerRunner", "database", "baseline"])
def test_names_that_only_look_alike_are_fine(name: str) -> None:
    assert banned_words(name) == []
