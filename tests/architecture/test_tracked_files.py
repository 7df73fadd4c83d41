"""The project speaks of itself alone: no paths of a machine, no addresses of a package index."""

import re
from pathlib import Path
from typing import Any

import pytest

MACHINE = re.compile(
    "|".join(
        [
            r"(?<![\w./-])/(?:home|Users)/[a-z]\w*/",
            r"(?<![\w./-])/root/",
            r"(?<![\w./-])/work/",
            r"/tmp/venv",
            r"index-url",
            r"find-links",
            r"\"resolved\":\s*\"http",
        ]
    )
)
MIB = 1 << 20


def test_no_file_names_a_machine_or_a_package_index(tracked: Any, root: Path) -> None:
    found = []
    for path in tracked:
        if path == Path(__file__):
            continue
        # A picture's bytes are no text, but what a program writes into its margins is.
        text = path.read_text(encoding="latin-1" if path.suffix == ".png" else "utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE.search(line):
                found.append(f"{path.relative_to(root)}:{number}")
    assert found == []


def test_no_file_is_larger_than_a_mebibyte(tracked: Any, root: Path) -> None:
    large = [str(p.relative_to(root)) for p in tracked if p.stat().st_size > MIB]
    assert large == []


@pytest.mark.parametrize("line", ["see /home/ann/x", "--index-url=https://x", "cd /work/main"])
def test_each_kind_is_found(line: str) -> None:
    assert MACHINE.search(line)


@pytest.mark.parametrize("line", ["tests/work/x", "https://example.org/work/1", "a /var/log/x"])
def test_what_only_looks_alike_is_fine(line: str) -> None:
    assert not MACHINE.search(line)
