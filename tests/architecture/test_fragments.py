"""Few rooms with few doors: no tiny modules, one class of one name. The lists may only shrink."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

LINES_MIN = 60

# Modules under 60 lines that one module imports, and why each still stands alone.
# Join a module with its importer instead of adding it here.
FRAGMENTS: dict[str, dict[str, str]] = {
    "headrace": {},
    "headrace_mq": {},
}

# Public classes whose name stands for two things in one distribution.
# Choose another name for the new class instead of adding it here.
NAMESAKES: dict[str, set[str]] = {
    "headrace": set(),
    "headrace_mq": set(),
}


def imported(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Names the modules of the project that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from names.intersection(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module or ""


def fragments(modules: Iterable[Any]) -> set[str]:
    """Returns the modules under 60 lines that exactly one module imports, packages' faces aside."""
    modules = list(modules)
    names = {module.name for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        if not module.is_package:
            for name in imported(module.tree, names):
                importers[name].add(module.name)
    return {
        module.name
        for module in modules
        if not module.is_package
        and module.text.count("\n") < LINES_MIN
        and len(importers[module.name]) == 1
    }


def namesakes(modules: Iterable[Any]) -> dict[str, list[str]]:
    """Returns the public top-level classes that share a name, with where they stand."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.where}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def complaints(found: Mapping[str, str], allowed: Iterable[str]) -> list[str]:
    """Compares what was found, with a sentence for each, and what is allowed."""
    allowed = set(allowed)
    new = [sentence for name, sentence in sorted(found.items()) if name not in allowed]
    stale = [
        f"{name} is no exception any more: remove it from the list"
        for name in sorted(allowed - found.keys())
    ]
    return new + stale


@pytest.mark.parametrize("distribution", ["headrace", "headrace_mq"])
def test_a_small_module_with_one_importer_joins_it(modules: Any, distribution: str) -> None:
    found = {
        name: f"{name} has under {LINES_MIN} lines and one importer: join them"
        for name in fragments(modules)
        if name.partition(".")[0] == distribution
    }
    assert complaints(found, FRAGMENTS[distribution]) == []


@pytest.mark.parametrize("distribution", ["headrace", "headrace_mq"])
def test_a_public_class_has_its_name_alone_in_its_distribution(
    modules: Any, distribution: str
) -> None:
    inside = [module for module in modules if module.name.partition(".")[0] == distribution]
    found = {
        name: f"{name} names {len(where)} classes: {', '.join(where)}"
        for name, where in namesakes(inside).items()
    }
    assert complaints(found, NAMESAKES[distribution]) == []


@pytest.mark.parametrize("distribution", ["headrace", "headrace_mq"])
def test_each_fragment_on_the_list_has_a_reason(distribution: str) -> None:
    reasons = FRAGMENTS[distribution]
    assert [name for name, reason in reasons.items() if len(reason.split()) < 3] == []


def test_a_new_exception_and_a_stale_one_are_told_apart() -> None:
    assert complaints({"a": "a is new"}, []) == ["a is new"]
    assert complaints({"a": "a is new"}, ["a"]) == []
    (sentence,) = complaints({}, ["a"])
    assert "remove it from the list" in sentence


class Planted:
    """A module that only these tests know."""

    is_package = False

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text, self.where = name, text, name
        self.tree = ast.parse(text)


def test_a_planted_fragment_is_found() -> None:
    small, alone = Planted("p.small", "A = 1\n"), Planted("p.alone", "B = 1\n")
    importer = Planted("p.importer", "from p import small\n")
    assert fragments([small, alone, importer]) == {"p.small"}
    assert fragments([small, Planted("p.x", "from p.small import A\n"), importer]) == set()
    assert fragments([Planted("p.small", "A = 1\n" * LINES_MIN), importer]) == set()


def test_planted_namesakes_are_found_unless_private() -> None:
    twice = [Planted("p.a", "class Row: ...\nclass _Own: ...\n")]
    twice.append(Planted("p.b", "class Row: ...\nclass _Own: ...\n"))
    assert namesakes(twice) == {"Row": ["p.a:1", "p.b:1"]}
