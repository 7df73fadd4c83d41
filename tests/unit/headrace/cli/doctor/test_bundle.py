"""The bundle of `headrace doctor`: what is in it, and that no secret is."""

import json
import stat
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

import headrace.cli
from headrace.alarms.board import RaisedAlarm
from headrace.alarms.folder import AlarmFolder, ReceiverState, WatcherState
from headrace.cli.doctor import broker_look, machine_look
from headrace.cli.doctor.bundle import Secrets, write_bundle
from headrace.cli.doctor.machine_rules import MachineFacts
from headrace.errors import HeadraceError
from tests.unit.headrace.cli.conftest import Run

MEMBERS = {
    "report.txt", "report.json", "versions.json", "settings.json", "broker.json", "cluster.json", "alarms.json",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java is asked."""
    monkeypatch.setattr(machine_look, "look_at_machine", lambda: MachineFacts((3, 12), "", "", ""))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]) -> str:
    """An address that does not answer; it is not waited for."""
    monkeypatch.setattr(broker_look, "CONNECT_MS", 50)
    return f"127.0.0.1:{free_port()}"


def doctor(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(headrace.cli._command_line(), ["doctor", *arguments], env=environment)


def members(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for one in archive.getmembers():
            content = archive.extractfile(one)
            assert content is not None
            assert (one.mode, one.uname, one.uid) == (0o600, "", 0)
            found[one.name.removeprefix("headrace-doctor/")] = content.read().decode()
    return found


def values(file: Path) -> dict[str, Any]:
    return {
        name: json.loads(text) for name, text in members(file).items() if name.endswith(".json")
    }


def test_a_bundle_has_what_the_broker_tells_and_nothing_of_messages(
    run: Run, topic: str, tmp_path: Path
) -> None:
    run("topic", "create", topic)
    run("message", "send", topic, "a-body-of-a-person", "--key", "a-key-of-a-person")
    file = tmp_path / "bundle.tar.gz"
    done = run("doctor", "--bundle", str(file), "--json")
    report = json.loads(done.output[done.output.index("{") : done.output.rindex("}") + 1])
    found = values(file)
    assert set(members(file)) == MEMBERS
    assert found["report.json"]["checks"][0].keys() == report["checks"][0].keys()
    assert done.status == {"ok": 0, "warning": 1, "failed": 2}[found["report.json"]["state"]]
    assert topic in {one["topic"] for one in found["broker.json"]["topics"]}
    assert found["broker.json"]["status"]["topics"] >= 1
    assert "groups" in found["broker.json"]
    assert found["versions.json"]["packages"]["pydantic"]
    assert {one["name"] for one in found["settings.json"]} >= {"broker", "store.flush"}
    assert found["cluster.json"] == {"not_asked": "--record was not given"}
    assert members(file)["report.txt"].split()[:2] == ["state", "check"]
    assert not any("of-a-person" in text for text in members(file).values())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_secret_is_in_any_member(silent: str, tmp_path: Path) -> None:
    secrets = {
        name: f"hunter2-{name}"
        for name in ("store", "models", "archive", "record", "file", "hook", "env", "query", "said")
    }
    password = tmp_path / "password"
    password.write_text(secrets["file"])
    password.chmod(0o600)
    hook = f"https://hooks.example/services/{secrets['hook']}"
    alarms = tmp_path / "alarms.toml"
    alarms.write_text(
        f"folder = '{tmp_path}/alarms'\n[[target]]\njob = 'headrace-broker'\nurl = 'http://127.0.0.1:1/metrics'\n[[webhook]]\nname = 'duty'\nurl = '{hook}?key={secrets['query']}'\n"
    )
    AlarmFolder(tmp_path / "alarms").keep(
        WatcherState(
            looked_s=time.time(), every_s=60.0,
            alarms=(RaisedAlarm("HeadraceBrokerDown", "critical", {"instance": secrets["env"]}, 1.0, f"token={secrets['said']} {hook}", 1.0, 1.0),),
            receivers={"duty": ReceiverState(failures=3, sentence=f"{hook} answers 500")},
        )
    )  # fmt: skip
    config = tmp_path / "settings.toml"
    config.write_text(f"[archive]\nurl = 'postgresql://a:{secrets['archive']}@127.0.0.1:1/a'\n")
    file = tmp_path / "bundle.tar.gz"
    done = doctor(
        "--bundle", str(file), "--config", str(config), "--alarms", str(alarms),
        "--read-models", f"postgresql://bank:{secrets['models']}@127.0.0.1:1/bank",
        HEADRACE_BROKER=silent, HEADRACE_USER="bank", HEADRACE_PASSWORD_FILE=str(password),
        HEADRACE_EVENT_STORE=f"postgresql://bank:{secrets['store']}@127.0.0.1:1/bank",
        HEADRACE_RECORD=f"postgresql://bank:{secrets['record']}@127.0.0.1:1/bank",
        SHOP_API_TOKEN=secrets["env"], HOME=str(tmp_path),
    )  # fmt: skip
    assert done.exit_code == 2, done.output
    found = members(file)
    assert set(found) == MEMBERS
    for name, text in found.items():
        for place, secret in secrets.items():
            assert secret not in text, (name, place)
        assert "hunter2" not in text, name
    assert str(tmp_path) not in found["settings.json"]
    shown = {one["name"]: one for one in json.loads(found["settings.json"])}
    assert shown["event_store"]["value"] == "postgresql://bank:***@127.0.0.1:1/bank"
    assert "metrics" in shown  # a word of the address of a target
    assert shown["read_models"]["source"] == "option of the doctor"
    assert "firing" in json.loads(found["alarms.json"]), found["alarms.json"]
    assert json.loads(found["alarms.json"])["firing"][0]["alarm"] == "HeadraceBrokerDown"


def test_a_part_that_cannot_be_asked_is_a_sentence(silent: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    missing = tmp_path / "missing.toml"
    done = doctor(
        "--bundle", str(file), "--broker", silent, "--alarms", str(missing), "--set", "strange=1",
        "--record", "postgresql://bank@127.0.0.1:1/bank",
    )  # fmt: skip
    assert done.exit_code == 2
    found = values(file)
    for name in ("broker.json", "cluster.json", "alarms.json", "settings.json"):
        assert found[name].keys() == {"not_asked"}, name
    assert "missing.toml cannot be read" in found["alarms.json"]["not_asked"]
    assert "there is no setting 'strange'" in found["settings.json"]["not_asked"]
    assert "Traceback" not in done.output


def test_a_file_that_exists_is_kept_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_text("mine")
    done = doctor("--bundle", str(file))
    assert (done.exit_code, file.read_text()) == (2, "mine")
    assert "name a new file" in " ".join(done.output.split())
    assert doctor("--bundle", str(tmp_path / "no" / "bundle")).exit_code == 2
    with pytest.raises(HeadraceError, match="cannot be written"):
        write_bundle(file, {"report.txt": "x"}, Secrets({}))
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql://bank:pw@db/bank", "postgresql://bank:***@db/bank"),
        ("no 'tcp://u:p/w@h:1' here", "no 'tcp://u:***@h:1' here"),
        ("u:pw@h:9876 is no address", "u:***@h:9876 is no address"),
        ("https://pw@errors.example/1?a=pw", "https://***@errors.example/1?***"),
        ("kafka://h:1?sasl.password=pw&x=1", "kafka://h:1?sasl.password=***&x=1"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("it says eyJhbGciOi.eyJzdWIi.c2ln now", "it says *** now"),
        ("tls://h:1?ca=ca.pem&password_file=x", "tls://h:1?ca=ca.pem&password_file=x"),
        ("broker 10.0.0.5:9876; check: it runs", "broker 10.0.0.5:9876; check: it runs"),
    ],
)
def test_the_filter_knows_the_forms_of_secrets(text: str, clean: str) -> None:
    assert Secrets({}).without([text]) == [clean]


def test_the_filter_removes_what_it_knows_wherever_it_stands() -> None:
    environment = {
        "DB_URL": "postgresql://bank:s3cr%40t-1@db/bank", "CI_TOKEN": "token-of-ci", "PASSWORD_FILE": "/run/password",
        "OTHER": "postgresql://headrace:headrace@db/x", "SHORT_TOKEN": "ab",
    }  # fmt: skip
    secrets = Secrets(environment)
    assert secrets.without({"token-of-ci": ("s3cr@t-1", "s3cr%40t-1")}) == {"***": ["***", "***"]}
    kept = ["headrace", "/run/password", "about", 7, None, True]
    assert secrets.without(kept) == kept
    assert "hunter2" not in secrets.without(SecretStr("hunter2"))
