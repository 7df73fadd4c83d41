"""The bank's notebook runs from its first cell to its last, draws its plots, and is kept without output."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "samples" / "bank" / "events.ipynb"


async def test_the_notebook_answers_its_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Java without its second compiler, which a process that lives for seconds gains nothing from.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # As where it is opened: modules are looked for in the folder of the process, too.
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )
    await client.async_execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    plots = [one for one in shown if "image/png" in one.get("data", {})]
    assert len(plots) == 3
    told = "".join(one.get("text", "") for one in shown if one.output_type == "stream")
    assert "AccountOpened|  200|" in told
    assert "Deposited| 16" in told


def test_the_notebook_is_kept_without_what_it_printed() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs or cell.execution_count for cell in cells] == [None] * len(cells)
