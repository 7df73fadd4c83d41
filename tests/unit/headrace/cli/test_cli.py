"""The command line as a user meets it: help, mistakes, exit statuses."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner, Result

from headrace import __main__ as headrace_main
from headrace.cli import _command_line
from tests.unit.headrace.cli.called import call

ROOT = Path(__file__).parents[4]


def headrace(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return call(*arguments, cwd=cwd)


def process(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True, text=True, cwd=cwd, timeout=120, check=False,
    )  # fmt: skip


def test_help_names_every_subcommand() -> None:
    shown = process("--help")
    assert shown.returncode == 0
    for name in (
        "broker", "run", "parked", "projection", "db", "topic", "group", "message", "producer", "store",
        "stream",
    ):  # fmt: skip
        assert name in shown.stdout


def test_the_version_is_shown() -> None:
    shown = process("--version")
    assert (shown.returncode, shown.stdout) == (0, f"headrace {version('headrace')}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "--help"], ["run", "--help"], ["projection", "rebuild", "--help"],
        ["db", "upgrade", "--help"], ["topic", "create", "--help"],
    ],
)  # fmt: skip
def test_every_subcommand_explains_itself(arguments: list[str]) -> None:
    shown = headrace(*arguments)
    assert (shown.returncode, "Usage" in shown.stdout) == (0, True)


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str, number: int) -> list[str]:
        code = "import sys; sys.argv = ['headrace']; from headrace.cli import main; main()"
        asked = {
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, env=os.environ | asked, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout.split()

    assert {"freeze", "thaw"} <= set(completed("headrace topic ", 2))
    assert completed("headrace message find t k --li", 5) == ["--limit"]


def test_a_command_looks_for_garbage_rarely_before_it_loads_its_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    monkeypatch.setattr("gc.set_threshold", lambda *thresholds: done.append(thresholds))
    monkeypatch.setattr("headrace.cli.main", lambda: done.append("loaded"))
    begin: Callable[[], None] = headrace_main.main  # this one returns
    begin()
    assert done == [headrace_main._GC_THRESHOLDS, "loaded"]


def test_showing_the_help_loads_no_database_broker_or_spark() -> None:
    code = (
        "import sys; from headrace.cli import main\n"
        "sys.argv = ['headrace', '--help']\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'sqlalchemy', 'uvloop', 'pyspark', 'headrace_mq.broker.server', 'headrace_mq.broker.process', 'alembic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def assert_mistake(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert sentence in " ".join(done.stderr.split())


def test_an_unknown_application_is_one_sentence(tmp_path: Path) -> None:
    assert_mistake(process("run", "nowhere:app", cwd=tmp_path), "there is no module 'nowhere'")


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [("", "traced with Tracing"), ("opentelemetry", "'headrace[tracing]'")],
)
def test_an_application_is_traced_when_it_is_asked_for(
    tmp_path: Path, missing: str, sentence: str
) -> None:
    (tmp_path / "shown.py").write_text(
        "import sys\n"
        "from headrace import App\n"
        "from headrace.errors import DefinitionError\n"
        f"sys.modules[{missing!r}] = None\n"
        "class Shown(App):\n"
        "    def trace_with(self, tracing):\n"
        "        raise DefinitionError(f'traced with {type(tracing).__name__}')\n"
        "app = Shown('shown')\n"
    )
    # It forbids the process a module.
    assert_mistake(process("run", "shown:app", "--tracing", cwd=tmp_path), sentence)


def test_a_process_is_called_by_the_name_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(
        "from headrace import App\n"
        "from headrace.errors import DefinitionError\n"
        "class Shown(App):\n"
        "    def run(self, settings):\n"
        "        raise DefinitionError(f'called {settings.name}')\n"
        "app = Shown('shown')\n"
    )
    run = ("run", "shown:app", "--name")
    assert_mistake(headrace(*run, "till-3.EU", cwd=tmp_path), "called till-3.EU")
    assert_mistake(headrace(*run, "till 3", cwd=tmp_path), "not 'till 3'")


def test_metrics_are_served_at_an_address_of_this_machine_unless_the_network_is_safe(
    tmp_path: Path,
) -> None:
    (tmp_path / "shown.py").write_text(
        "from headrace import App\n"
        "from headrace.errors import DefinitionError\n"
        "class Shown(App):\n"
        "    def run(self, settings):\n"
        "        raise DefinitionError(f'metrics at {settings.metrics}')\n"
        "app = Shown('shown')\n"
    )
    run = ("run", "shown:app", "--metrics")
    assert_mistake(headrace(*run, "127.0.0.1:9465", cwd=tmp_path), "metrics at 127.0.0.1:9465")
    assert_mistake(headrace(*run, "9465", cwd=tmp_path), "write HOST:PORT for metrics")
    assert_mistake(headrace(*run, "0.0.0.0:9465", cwd=tmp_path), "could read the metrics")
    insecure = headrace(*run, "0.0.0.0:9465", "--insecure", cwd=tmp_path)
    assert_mistake(insecure, "metrics at 0.0.0.0:9465")


def test_an_address_for_others_without_tls_is_refused_before_the_application_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "shown.py").write_text(
        "from headrace import App\n"
        "from headrace.errors import DefinitionError\n"
        "class Shown(App):\n"
        "    def run(self, settings):\n"
        "        raise DefinitionError('it starts')\n"
        "app = Shown('shown')\n"
    )
    run = ("run", "shown:app", "--http")
    assert_mistake(headrace(*run, "0.0.0.0:0", cwd=tmp_path), "set http.tls_certificate")
    assert_mistake(headrace(*run, "127.0.0.1:0", cwd=tmp_path), "it starts")


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    assert_mistake(headrace("topic", "list", "--broker", "127.0.0.1:1"), "127.0.0.1:1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["process", "list", "--read-models"],
        ["projection", "list", "--app=samples.bank:app", "--read-models"],
        ["projection", "status", "--app=samples.bank:app", "--read-models"],
        ["stream", "show", "ann", "--app=samples.bank:app", "--event-store"],
        ["db", "check", "--url"],
    ],
)
def test_commands_that_read_make_no_missing_database(tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "e.db"
    assert_mistake(headrace(*arguments, f"sqlite:///{file}"), "there is no database sqlite:///")
    assert not file.exists()


def test_a_revision_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'e.db'}"
    done = headrace("db", "upgrade", "--url", url, "--revision", "none-such")
    assert_mistake(done, "cannot be taken to 'none-such'")


def test_a_database_that_does_not_answer_is_one_sentence() -> None:
    done = headrace("db", "check", "--url", "postgresql://me@127.0.0.1:1/orders")
    assert_mistake(done, "the database does not answer")


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is a letter, and no database at all.\n" * 99)
    url = f"sqlite:///{tmp_path / 'text.db'}"
    assert_mistake(headrace("db", "upgrade", "--url", url), "the database cannot be used")


def test_a_folder_in_place_of_a_database_is_one_sentence(tmp_path: Path) -> None:
    assert_mistake(headrace("db", "upgrade", "--url", f"sqlite:///{tmp_path}"), "is a folder")


def test_a_user_that_the_database_refuses_is_one_sentence(postgres_database: str) -> None:
    url = make_url(postgres_database).set(username="nobody-of-that-name")
    done = headrace("db", "check", "--url", url.render_as_string(hide_password=False))
    assert_mistake(done, "the database cannot be used")


def test_a_wrong_database_url_is_one_sentence() -> None:
    assert_mistake(headrace("db", "upgrade", "--url", "mysql://x"), "mysql")


def test_a_wrong_flush_mode_is_one_sentence(tmp_path: Path) -> None:
    assert_mistake(
        headrace("broker", "--data", str(tmp_path), "--flush", "never"),
        "flush must be 'always' or 'interval', not 'never'",
    )


def test_a_database_goes_up_is_checked_and_goes_down(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'e.db'}"
    assert headrace("db", "upgrade", "--url", url).returncode == 0
    assert "up to date" in headrace("db", "check", "--url", url).stdout
    assert headrace("db", "downgrade", "--url", url, "--revision", "base").returncode == 0
    assert_mistake(headrace("db", "check", "--url", url), "headrace db upgrade")


def test_streams_on_postgresql_are_divided_among_shards(
    postgres_database: str, tmp_path: Path
) -> None:
    def db(*arguments: str) -> Result:
        return CliRunner().invoke(_command_line(), ["db", *arguments])

    assert db("upgrade", "--url", postgres_database).exit_code == 0
    shard = ("shard", "--url", postgres_database)
    assert db(*shard).output == "the streams are in one table\n"
    assert db(*shard, "--shards", "4").output == "there are 4 shards\n"
    alone = db("shard", "--url", f"sqlite:///{tmp_path / 'e.db'}")
    assert "only PostgreSQL keeps streams in shards" in str(alone.exception)


def test_a_running_broker_is_shown(run, broker_address) -> None:
    shown = run("broker", "show")
    assert ["address", broker_address] in shown.rows
    assert ["held up by quotas", "0 requests, 0 wait now"] in shown.rows
    assert ["takes messages", "yes"] in shown.rows
    told = run("broker", "show", "--json").json
    assert told["broker"]["broker"] == broker_address
    assert [log["log"] for log in told["status"]["logs"]] == ["forever", "transient", "compact"]


def test_a_broker_needs_a_folder(run) -> None:
    done = run("broker", "--port", "0")
    assert (done.status, "--data" in done.output) == (2, True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_works_with_streams_that_are_closed(broker_address, closed) -> None:
    script = f'exec "$0" -m headrace topic list --broker "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, broker_address],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_else_gets_the_number_of_a_closed_stream() -> None:
    program = """
import sys
from headrace.cli.streams import prepare_streams
prepare_streams()
sys.exit([stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)] != [0, 1, 2])
"""
    script = 'exec "$0" -c "$1" <&- >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, program], cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == 0
