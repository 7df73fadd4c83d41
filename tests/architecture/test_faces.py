"""What can be imported from outside: one explicit door per package, light to open."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FACES = ["headrace", "headrace_mq"]


def says_what_it_exports(tree: ast.Module) -> bool:
    """Whether a module has an `__all__`; ruff sees to its order."""
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        for node in tree.body
    )


@pytest.mark.parametrize("face", FACES)
def test_a_face_exports_names_that_exist_each_once(face: str) -> None:
    module = importlib.import_module(face)
    assert module.__all__
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("face", FACES)
def test_what_a_face_exports_calls_the_face_its_home(face: str) -> None:
    module = importlib.import_module(face)
    exported = [getattr(module, name) for name in module.__all__]
    strangers = [
        one.__qualname__
        for one in exported
        if isinstance(one, type) and not one.__module__.startswith(face)
    ]
    assert strangers == []


def test_every_module_says_what_it_exports(modules: Any) -> None:
    unsaid = [
        module.where
        for module in modules
        if not module.is_package
        and not module.name.endswith("__main__")
        and not says_what_it_exports(module.tree)
    ]
    assert unsaid == []


def loaded_by(code: str, root: Path) -> set[str]:
    """Returns the modules that a fresh process has loaded after running the code."""
    shown = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize("face", FACES)
def test_a_name_that_waits_is_loaded_from_where_type_checkers_find_it(
    face: str, modules: Any
) -> None:
    (tree,) = (module.tree for module in modules if module.name == face)
    (imports,) = (node.body for node in tree.body if isinstance(node, ast.If))
    homes = {name.name: node.module for node in imports for name in node.names}
    module = importlib.import_module(face)
    assert dict(module._HOMES) == homes
    assert set(homes) <= set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no attribute 'Aggregat'"):
        _ = module.Aggregat


def test_all_names_of_the_framework_wait_until_they_are_used() -> None:
    face = importlib.import_module("headrace")
    assert sorted(face._HOMES) == sorted(face.__all__)


def test_a_program_that_only_sends_and_receives_loads_no_broker(root: Path) -> None:
    loaded = loaded_by("import headrace_mq", root)
    assert "headrace_mq.client.producer.producer" in loaded
    assert not loaded & {"headrace_mq.broker.server", "headrace_mq.admin.client"}


def test_the_help_text_waits_for_nothing_but_the_command_line(root: Path) -> None:
    loaded = loaded_by("import headrace.cli; headrace.cli._command_line()", root)
    assert loaded & {"pydantic", "headrace.app", "headrace_mq", "msgspec", "structlog"} == set()


def test_importing_headrace_loads_no_spark_queue_or_database(root: Path) -> None:
    loaded = loaded_by("from headrace import *", root)
    assert {"headrace.app", "headrace.errors"} <= loaded
    assert (
        loaded & {"pyspark", "pyarrow", "headrace_mq", "sqlalchemy", "alembic", "uvloop"} == set()
    )


def test_importing_the_queue_loads_no_spark_and_no_framework(root: Path) -> None:
    loaded = loaded_by("import headrace_mq", root)
    assert "headrace_mq.message" in loaded
    assert loaded & {"pyspark", "pyarrow", "headrace", "sqlalchemy"} == set()


def test_loading_something_heavy_would_be_noticed(root: Path) -> None:
    assert "sqlalchemy" in loaded_by("import sqlalchemy", root)
