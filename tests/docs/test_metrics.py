"""The page of metrics is made of the tables in the code."""

import runpy
from pathlib import Path


def test_the_tables_of_metrics_are_those_of_the_code(root: Path) -> None:
    script = runpy.run_path(str(root / "docs" / "metrics.py"))
    page = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert script["with_tables"](page) == page, "run: python docs/metrics.py"
