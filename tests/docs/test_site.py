"""The documentation as a site: both builders take it, every link and anchor leads somewhere, nothing comes from elsewhere."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Whatever a page would load from another host by itself.
FOREIGN = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"?https?://(?!localhost)([^\"> ]+)")
SECONDS_MAX = 300


@pytest.fixture
def place(root: Path, tmp_path: Path) -> Path:
    """The project as the builders see it: its pages laid out, its packages, and `mkdocs.yml`."""
    runpy.run_path(str(root / "docs" / "site.py"))["lay_out"](tmp_path / "var" / "site" / "source")
    shutil.copy(root / "mkdocs.yml", tmp_path)
    for name in ("framework", "mq"):
        (tmp_path / name).symlink_to(root / name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("builder", ["mkdocs", "zensical"])
def test_the_site_builds_without_a_warning(place: Path, builder: str) -> None:
    command = [str(Path(sys.executable).parent / builder), "build", "--strict"]
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    site = place / "var" / "site" / "html"
    text = (site / "docs" / "reference" / "headrace.html").read_text(encoding="utf-8")
    assert "raise_for_rejection" in text
    first = (site / "docs" / "getting-started.html").read_text(encoding="utf-8")
    assert 'class="filename">shop.py<' in first
    assert "```" not in re.sub(r"<pre>.*?</pre>", "", first, flags=re.DOTALL)
    found = {
        page.name: FOREIGN.findall(page.read_text(encoding="utf-8"))
        for page in site.rglob("*.html")
    }
    assert {name: links for name, links in found.items() if links} == {}


def test_a_page_that_names_a_missing_anchor_is_noticed(place: Path, documents: Any) -> None:
    assert documents
    page = place / "var" / "site" / "source" / "docs" / "guarantees.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[x](concepts.md#nowhere)\n")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict"],
        cwd=place, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "nowhere" in done.stdout + done.stderr
