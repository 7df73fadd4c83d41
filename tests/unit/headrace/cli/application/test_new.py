"""`headrace new`: what it writes under a name, and what it refuses."""

import keyword
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import headrace.cli

ROOT = Path(__file__).parents[5]
TEMPLATE = ROOT / "samples" / "templates" / "shop"
LEFT_OUT = {"__pycache__", ".pytest_cache"}


def new(*arguments: object) -> Result:
    return CliRunner().invoke(headrace.cli._command_line(), ["new", *map(str, arguments)])


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_OUT.intersection(path.parts)
    }


def test_a_project_is_the_template_under_another_name(tmp_path: Path) -> None:
    done = new("tea_house", "--directory", tmp_path / "here")
    assert done.exit_code == 0, done.output
    assert "python -m tea_house" in done.output
    written = files(tmp_path / "here")
    assert {"pyproject.toml", "README.md", "headrace.toml", ".gitignore"} < written.keys()
    assert {"tea_house/__init__.py", "tests/test_application.py"} < written.keys()
    assert not [path for path, text in written.items() if "shop" in path + text]
    back = {path: text.replace("tea_house", "shop") for path, text in written.items()}
    assert {path.replace("tea_house", "shop"): text for path, text in back.items()} == files(
        TEMPLATE
    )
    assert tomllib.loads(written["pyproject.toml"])["project"]["name"] == "tea_house"


def test_a_project_goes_into_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "depot").mkdir()  # empty
    assert new("depot").exit_code == 0
    assert (tmp_path / "depot" / "depot" / "stock.py").is_file()
    written = files(tmp_path)
    again = new("depot")
    assert (again.exit_code, files(tmp_path)) == (2, written)
    assert "is not empty" in again.output


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("mine")
    assert new("depot", "--directory", file).exit_code == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["My-Shop", "1st", "", "a.b", "../up", "class", "json", "headrace", "tests", "x" * 41, "é"],
)
def test_a_name_that_python_cannot_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = new(name)
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    reserved = keyword.iskeyword(name) or name in {*sys.stdlib_module_names, "headrace", "tests"}
    assert ("another name" if reserved else "such as my_shop") in " ".join(done.output.split())


def test_a_project_asks_for_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    major, minor, _ = version.split(".")
    (asked,) = tomllib.loads((TEMPLATE / "pyproject.toml").read_text("utf-8"))["project"][
        "dependencies"
    ]
    assert asked == f"headrace>={major}.{minor}.0,<{major}.{int(minor) + 1}"
