"""Names say what a thing is; a package says what uses it, or what it uses."""

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

BANNED = re.compile(
    r"(?:^|_)(?:manager|service|helpers?|utils?|impl|default|common|base|abstract)(?:$|_)"
)
# The ports are the base of their adapters, by name too: `stores.base`, `transports.base`.
PORTS = {"headrace.stores.base", "headrace.transports.base"}
# Users import these two by name.
PUBLIC_GERUNDS = {"testing", "tracing"}
# A sentence about its place: what uses it, what it reads or writes, which port it implements.
WORKS_WITH = re.compile(r"\b(?:Used by|Reads|Implements|Watches|Sits between:) ")
# What a newcomer takes in at a look.
ROOM_FILES_MAX = 15
# A test's name is read in a list of failures, where nothing says who "it" is.
NO_SUBJECT = re.compile(
    r"^test_(?:its?|this|they|what|whatever|whose|all_that|of_what)_"
    r"|_(?:who|whom|whoever|whatever|nobody|somebody|beside|anew|thereby|(?:is|are|was|were)_told)(?:_|$)"
)
# The tests whose names have a subject; add to them.
NAMED_TESTS = (
    *(
        f"tests/unit/headrace/{room}/"
        for room in (
            "cli", "events", "gateway", "handlers", "lineage", "processes", "projections", "stores",
            "subscriptions", "testing", "watch",
        )
    ),
    "tests/acceptance/",
    "tests/conformance/",
    "tests/crash/",
    "tests/integration/",
    "tests/simulation/",
    "tests/unit/headrace_mq/",
)  # fmt: skip
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


def test_no_module_is_named_by_a_gerund(modules: Any) -> None:
    named = {m.where: m.name.rpartition(".")[2] for m in modules}
    gerunds = [where for where, name in named.items() if name.endswith("ing")]
    assert sorted({named[where] for where in gerunds} - PUBLIC_GERUNDS) == []


def test_a_tests_name_has_a_subject(python_files: Any) -> None:
    found = [
        f"{file.where}: {node.name}"
        for file in python_files
        if file.where.startswith(NAMED_TESTS)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NO_SUBJECT.search(node.name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "name",
    [
        "test_it_is_there",
        "test_who_asks_gets_it",
        "test_what_is_lost_stays_lost",
        "test_a_is_made_anew",
        "test_a_file_beside_the_log",
        "test_a_member_is_told",
        "test_a_client_whom_the_broker_refuses",
    ],
)
def test_a_name_without_a_subject_is_found(name: str) -> None:
    assert NO_SUBJECT.search(name)


@pytest.mark.parametrize(
    "name",
    ["test_a_cancelled_fetch_is_answered_once", "test_items_are_sorted", "test_whole_batches_stay"],
)
def test_a_name_with_a_subject_passes(name: str) -> None:
    assert not NO_SUBJECT.search(name)


def test_a_room_has_at_most_fifteen_files(modules: Any) -> None:
    rooms = Counter(str(Path(module.where).parent) for module in modules)
    assert {room: files for room, files in rooms.items() if files > ROOM_FILES_MAX} == {}


@pytest.mark.parametrize("distribution", ["framework", "mq"])
def test_the_architecture_names_every_package(root: Path, modules: Any, distribution: str) -> None:
    page = (root / distribution / "ARCHITECTURE.md").read_text()
    packages = [
        module.name.partition(".")[2]
        for module in modules
        if module.is_package and module.where.startswith(f"{distribution}/")
    ]
    assert [name for name in packages if name and f"`{name}`" not in page] == []


def test_every_package_says_what_it_works_with(modules: Any) -> None:
    silent = [
        module.where
        for module in modules
        if module.is_package and not WORKS_WITH.search(ast.get_docstring(module.tree) or "")
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
