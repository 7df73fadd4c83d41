"""
`headrace new`: writes a small project that runs, with tests.

Used by you once, to begin an application. The template is a project of its own (`samples/templates/shop`); its name is
replaced by yours.
"""

import keyword
import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace._runtime.shipped import shipped_folder

__all__ = ["new", "write_project"]

# The name of the template's project: wherever this word is, the new name comes.
_TEMPLATE: Final = "shop"
_WORD: Final = re.compile(rf"\b{_TEMPLATE}\b")
# What Python can import on every system, and what a package may be called.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Long enough for a name; a path has room for more.
_NAME_CHARACTERS_MAX: Final = 40
_LEFT_OUT: Final = {"__pycache__", ".pytest_cache", "var", ".venv"}
_TAKEN: Final = {"headrace", "headrace_mq", "pydantic", "pytest", "samples", "tests"}


def new(
    name: Annotated[
        str, typer.Argument(help="The project's name, which is also its package: shop, my_shop.")
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="DIR", help="Where it goes; default: ./NAME."),
    ] = None,
) -> None:
    """Write a small project: an aggregate, a projection, an event handler, settings and tests."""
    folder = directory or Path(name)
    _check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(
            f"{folder} is not empty; choose another with --directory",
            param_hint="--directory" if directory else "NAME",
        )
    write_project(name, folder)
    typer.echo(
        f"{folder} is a project that runs. Go on:\n\n  cd {folder}\n  python -m {name}\n"
        "  pip install pytest pytest-asyncio\n  python -m pytest\n\nREADME.md says more."
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS_MAX:
        raise typer.BadParameter(
            f"{name!r} cannot be a package's name; use small letters, digits and underscores,"
            f" at most {_NAME_CHARACTERS_MAX}, such as my_shop",
            param_hint="NAME",
        )
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in _TAKEN:
        raise typer.BadParameter(
            f"{name!r} has a meaning in Python or is another package; choose another name",
            param_hint="NAME",
        )


def write_project(name: str, folder: Path) -> None:
    """Writes the template's files into a folder, under another name.

    Args:
        name: the project's, a name of a Python package.
        folder: made if it is missing.

    Raises:
        DefinitionError: the installation lacks the template.
        OSError: a file cannot be written.
    """
    root = shipped_folder("_shipped", "", mark=f"samples/templates/{_TEMPLATE}/pyproject.toml")
    template = root / "samples" / "templates" / _TEMPLATE
    for file in sorted(template.rglob("*")):
        parts = file.relative_to(template).parts
        if _LEFT_OUT.intersection(parts) or not file.is_file():
            continue
        path = folder.joinpath(*(_WORD.sub(name, part) for part in parts))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _WORD.sub(name, file.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
