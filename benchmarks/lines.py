"""Results as lines of JSON: printed, kept for a page, and in a file at once, so that a break loses none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Line", "Lines", "read"]

Line = Mapping[str, Any]


class Lines:
    """What a run has found so far.

    Args:
        path: where it goes besides standard output; a file of an earlier run is replaced.

    Attributes:
        said: all lines, oldest first.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.said: list[Line] = []
        self._path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def say(self, line: Line) -> None:
        """Tells one line."""
        self.said.append(line)
        text = json.dumps(line)
        print(text, flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{text}\n")


def read(path: Path) -> list[Line]:
    """The lines of an earlier run."""
    return [json.loads(line) for line in path.read_text().splitlines()]
