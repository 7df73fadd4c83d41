"""
Tries what has to work on Windows: an application in one process, a new project with its tests, and the sentence that a
broker needs another system. The workflow `tests` runs it, with Headrace installed; it works on Linux, too, but for the
last part.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 600
MISTAKE: Final = 2


def _run(*arguments: str, folder: Path, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode != status:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Runs each part in an empty folder; the first one that fails ends it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (bank,) = re.findall(r"^```python bank\.py\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bank.py").write_text(bank, encoding="utf-8")
        print(_run("bank.py", folder=folder))
        print(_run("-m", "headrace", "new", "depot", folder=folder))
        project = folder / "depot"
        _run("-m", "pip", "install", "--quiet", "pytest", "pytest-asyncio", folder=project)
        print(_run("-m", "pytest", folder=project))
        print(_run("-m", "depot", folder=project))
        if sys.platform == "win32":
            print(_run("-m", "headrace", "broker", folder=folder, status=MISTAKE))


if __name__ == "__main__":
    main()
