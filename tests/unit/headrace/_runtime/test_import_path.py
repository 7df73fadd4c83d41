"""An application's path, imported: what is wrong in a user's module is told with its place."""

from pathlib import Path

import pytest

from headrace._runtime.import_path import import_named
from headrace.errors import DefinitionError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_a_path_names_is_returned(folder: Path) -> None:
    (folder / "wanted_of_importing.py").write_text("app = 5\n", encoding="utf-8")
    assert import_named("wanted_of_importing:app") == 5
    assert import_named("wanted_of_importing:other") is None


@pytest.mark.parametrize("path", ["", "shop", ":app", "shop:"])
def test_a_path_without_a_module_or_an_attribute_is_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="MODULE:ATTRIBUTE"):
        import_named(path)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a_syntax_error", "x = 1\ndef x(:\n", r"SyntaxError at .*a_syntax_error\.py:2: invalid"),
        ("an_error", "x = 1\n\n1 / 0\n", r"ZeroDivisionError at .*an_error\.py:3: division by"),
        (
            "a_library_error",
            "import json\njson.loads('x')\n",
            r"JSONDecodeError at .*a_library_error\.py:2: Expecting value",
        ),
        (
            "a_circle",
            "import a_circle\nfrom a_circle import x\n",
            r"ImportError at .*a_circle\.py:2: .*circular import",
        ),
        (
            "a_missing_package",
            "import no_such_package\n",
            r"there is no module 'no_such_package', which .*a_missing_package\.py:1 imports",
        ),
        ("an_exit", "import sys\nsys.exit(3)\n", r"an_exit\.py:2 ends the program"),
    ],
)
def test_a_module_that_fails_is_told_with_its_place(
    folder: Path, name: str, text: str, sentence: str
) -> None:
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with pytest.raises(DefinitionError, match=sentence):
        import_named(f"{name}:app")


def test_a_wrong_definition_keeps_its_own_sentence(folder: Path) -> None:
    (folder / "a_wrong_definition.py").write_text(
        "from headrace import App\nApp('x').handles(print)\n", encoding="utf-8"
    )
    with pytest.raises(DefinitionError, match=r"^(?!.*cannot be imported).*print"):
        import_named("a_wrong_definition:app")
