"""A whole run with TLS and a login: no secret stands in a log, in a file of data, or in the list of processes."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

# Some hundred commands on a busy machine.
pytestmark = pytest.mark.timeout(600)

SECONDS_MAX = 120
USERS = ("root", "bank", "ann")
RULES = (
    ("publish", "topic:bank.*"), ("consume", "topic:bank.*"), ("create", "topic:bank.*"),
    ("consume", "group:bank.*"), ("read", "cluster"),
)  # fmt: skip


# Between two looks at the list of processes; a command takes some hundred.
LOOK_MS = 50


class ProcessList:
    """What other users of the machine see: the command lines of all processes, again and again."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_MS / 1_000):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes())
                except OSError:  # it has ended
                    continue

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


class Site:
    """A broker, a service and commands of one machine, each with a log in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.tls = folder, folder / "data", folder / "tls"
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        self.passwords = {name: self.write(name) for name in (*USERS, "new", "wrong")}
        self.place = ""
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._servers: list[subprocess.Popen[str]] = []

    def write(self, name: str) -> str:
        """Makes a password, and its file."""
        file, password = self.secrets / name, secrets.token_urlsafe(24)
        file.write_text(password)
        file.chmod(0o600)
        return password

    def file(self, name: str) -> str:
        return str(self.secrets / name)

    def address(self, user: str, password: str = "") -> str:
        files = f"ca={self.tls}/ca.pem&certificate={self.tls}/client.pem&key={self.tls}/client.key"
        login = f"user={user}&password_file={quote(self.file(password or user))}"
        return f"tls://{self.place}?{files}&{login}"

    def command(self, *arguments: str, status: int = 0, typed: str = "") -> str:
        """Runs a command; its output is a log, too."""
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, check=False,
            timeout=SECONDS_MAX, env=self._environment(), cwd=self.folder, input=typed,
        )  # fmt: skip
        with (self._logs / "commands.log").open("a") as log:
            log.write(f"{done.stdout}{done.stderr}")
        assert done.returncode == status, (arguments, done.stderr)
        return done.stdout

    def serve(self, *arguments: str) -> str:
        """Starts a server; returns its line of readiness."""
        with (self._logs / f"{arguments[0]}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *arguments, "--log-level", "debug"],
                stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment(), cwd=self.folder,
            )  # fmt: skip
        self._servers.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line, (self._logs / f"{arguments[0]}.log").read_text()
        return line.strip()

    def end(self) -> None:
        for process in reversed(self._servers):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)

    def _environment(self) -> dict[str, str]:
        kept = {name: one for name, one in os.environ.items() if not name.startswith("HEADRACE_")}
        return kept | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}

    def keys(self) -> dict[str, bytes]:
        """Keys in the files of certificates, and what passwords become on their way."""
        found = {
            path.name: base64.b64decode("".join(path.read_text().splitlines()[1:-1]))
            for path in self.tls.glob("*.key")
        }
        content = (self.data / "metadata" / "users.json").read_bytes()
        users = json.loads(content[content.index(b"{") :])
        for name, user in users["users"].items():
            salt, rounds = base64.b64decode(user["salt"]), user["iterations"]
            password = self.passwords["new" if name == "ann" else name].encode()
            salted = hashlib.pbkdf2_hmac("sha256", password, salt, rounds)
            found[f"salted {name}"] = salted
            found[f"client key {name}"] = hmac.digest(salted, b"Client Key", "sha256")
            found[f"server key {name}"] = hmac.digest(salted, b"Server Key", "sha256")
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


def forms(secret: bytes) -> set[bytes]:
    """A secret as it might be written."""
    plain = base64.b64encode(secret)
    return {
        secret, secret.hex().encode(), secret.hex().upper().encode(), plain.rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="), quote(secret).encode(), repr(secret)[2:-1].encode(),
    }  # fmt: skip


def live(site: Site) -> None:
    """What a secured site does from its first certificate to its end."""
    site.command("certificates", "make", str(site.tls))
    root = ("--admin", "--data", str(site.data), "--new-password-file", site.file("root"))
    site.command("user", "add", "root", *root)
    tls = (f"{site.tls}/server.pem", f"{site.tls}/server.key", f"{site.tls}/ca.pem")
    line = site.serve(
        "broker", "--supervise", "--login", "--data", str(site.data), "--port", "0",
        "--tls-certificate", tls[0], "--tls-key", tls[1], "--tls-client-ca", tls[2],
    )  # fmt: skip
    site.place = line.rpartition(" ")[2].replace("127.0.0.1", "localhost")
    at = ("--broker", site.address("root"))
    site.command("user", "add", "bank", "--new-password-file", site.file("bank"), *at)
    for action, resource in RULES:
        site.command("acl", "allow", "bank", action, resource, *at)
    typed = f"{site.passwords['ann']}\n" * 2
    site.command("user", "add", "ann", *at, typed=typed)
    site.command("user", "password", "ann", "--new-password-file", site.file("new"), *at)
    site.command("topic", "list", "--broker", site.address("ann", "ann"), status=2)
    site.command("topic", "list", "--broker", site.address("root", "wrong"), status=2)
    site.command("topic", "create", "t", "--broker", site.address("ann", "new"), status=2)
    stores = (
        "--event-store", f"sqlite:///{site.folder}/events.db", "--read-models", f"sqlite:///{site.folder}/read.db",
    )  # fmt: skip
    site.command("db", "upgrade", "--url", stores[1])
    site.command("db", "upgrade", "--url", stores[3])
    site.serve("run", "samples.bank:app", "--broker", site.address("bank"), *stores)
    entries: Any = json.loads(site.command("audit", "list", "--json", *at))
    assert {"done", "failed", "refused"} <= {one["outcome"] for one in entries}
    site.command("broker", "connections", *at)


def test_a_secured_run_leaves_no_secret_outside_of_its_files_of_secrets(site: Site) -> None:
    processes = ProcessList()
    try:
        live(site)
    finally:
        processes.end()
    site.end()
    searched = {name: password.encode() for name, password in site.passwords.items()} | site.keys()
    files = [
        path for path in site.folder.rglob("*")
        if path.is_file() and path.suffix != ".key" and site.secrets not in path.parents
    ]  # fmt: skip
    assert len(files) > 15
    assert len([one for one in processes.seen if b"headrace" in one]) > 5
    texts = {str(path.relative_to(site.folder)): path.read_bytes() for path in files}
    texts["processes"] = b"\n".join(processes.seen)
    found = {
        (where, name)
        for where, text in texts.items()
        for name, secret in searched.items()
        if any(form in text for form in forms(secret))
    }
    # The broker keeps what it proves its own knowledge by, as SCRAM wants it; a client's key does not follow from it.
    assert {(where, name) for where, name in found if not name.startswith("server key")} == set()
    assert {where for where, _ in found} == {"data/metadata/users.json"}
