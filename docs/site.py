"""
Lays out the project's pages for the documentation site, as `mkdocs.yml` expects them.

Run by `make docs`. Pages link to each other by their places in the project, so they keep these places: every
Markdown file that git would show a visitor, and the files that pages link to, are copied into `var/site/source`.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

__all__ = ["lay_out", "pages"]

ROOT: Final = Path(__file__).parents[1]
PLACES: Final = (
    "*.md", "docs/**/*.md", "framework/**/*.md", "mq/**/*.md", "samples/**/*.md", "seeds/**/*.md",
    "benchmarks/**/*.md", "migrations/**/*.md",
)  # fmt: skip
# A block that you save as a file has the file's name behind its language; the site shows it as a title.
_NAMED_BLOCK: Final = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    """Returns the Markdown files of the project."""
    templates = ROOT / "samples" / "templates"
    found = {path for place in PLACES for path in ROOT.glob(place)}
    return sorted(path for path in found if not path.is_relative_to(templates))


def lay_out(target: Path) -> None:
    """Copies the pages, and what they link to, into an empty folder.

    Args:
        target: replaced if it exists.
    """
    shutil.rmtree(target, ignore_errors=True)
    known = pages()
    for page in known:
        text = page.read_text(encoding="utf-8")
        _copy(page, target).write_text(
            _NAMED_BLOCK.sub(r'```\1 title="\2"', text), encoding="utf-8"
        )
        for link in _LINK.findall(text):
            linked = (page.parent / link).resolve()
            if (
                "://" not in link
                and linked.is_file()
                and linked.is_relative_to(ROOT)
                and linked not in known
            ):
                _copy(linked, target)


def _copy(path: Path, target: Path) -> Path:
    place = target / path.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)
    return place


if __name__ == "__main__":
    lay_out(ROOT / "var" / "site" / "source")
    sys.stdout.write("laid out var/site/source\n")
