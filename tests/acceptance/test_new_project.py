"""What `headrace new` writes: the commands of its README, in their order, as its reader runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# tests/install installs it, in an environment of its own.
INSTALLING = ("python -m venv ", "source ", "pip install ")
SERVERS = ("headrace broker ", "headrace run ")
SECONDS_MAX = 120


def commands(readme: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith(INSTALLING)]


class Terminals:
    """Runs commands in a project's folder; servers go on until the end."""

    def __init__(self, folder: Path, servers: ExitStack) -> None:
        self._folder = folder
        self._servers = servers
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}
        self._environment.pop("PYTHONSAFEPATH", None)  # a reader has none: the project is found

    def run(self, command: str) -> str:
        done = subprocess.run(
            command.split(),
            cwd=self._folder, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def serve(self, command: str) -> str:
        server = subprocess.Popen(
            command.split(), cwd=self._folder, env=self._environment,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._servers.callback(server.communicate, timeout=SECONDS_MAX)
        self._servers.callback(server.terminate)
        assert server.stdout is not None
        return server.stdout.readline()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    with ExitStack() as servers:
        yield Terminals(tmp_path, servers)


def test_a_new_project_does_what_its_readme_says(
    tmp_path: Path, terminals: Terminals, free_port: Callable[[], int]
) -> None:
    terminals.run("headrace new depot --directory .")
    port = str(free_port())
    settings = tmp_path / "headrace.toml"
    text = settings.read_text(encoding="utf-8").replace("9876", port)
    settings.write_text(text + f"\n[broker]\nport = {port}\n", "utf-8")

    said = {}
    readme = (tmp_path / "README.md").read_text(encoding="utf-8").replace("9876", port)
    for command in commands(readme):
        said[command] = (
            terminals.serve(command) if command.startswith(SERVERS) else terminals.run(command)
        )
    assert "6 passed" in said["pytest"]
    assert "executed {'left': 6}\nrejected - 6 pieces of tea" in said["python -m depot"]
    assert "pieces=6 sold=4" in said["python -m depot"]
    assert "headrace run ready" in said["headrace run depot:app --config headrace.toml"]
    assert "executed {'left': 6}" in said[f"python -m depot 127.0.0.1:{port}"]
    assert (tmp_path / "var" / "broker").is_dir()
