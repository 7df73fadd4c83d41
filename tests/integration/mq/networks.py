"""
Networks of their own for processes on this machine, joined by a bridge, and cuts of them in one or both directions.

    namespace of the test ── bridge ──┬── eth0 of namespace a      10.77.0.2
      10.77.0.1                       └── eth0 of namespace b …    10.77.0.3

A cut gives a neighbour a hardware address that none has: frames leave, and arrive nowhere, as with a broken switch. The
machine's own network is not touched.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Networks", "unavailable"]

_CLONE_NEWNET = 0x40000000
_NOWHERE = "02:00:00:00:00:ff"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def unavailable() -> str:
    """Returns why this machine has no networks for tests; empty if it has."""
    if os.getuid() != 0:
        return "only root makes network namespaces"
    try:
        with Networks(["probe"]):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this machine makes no network namespaces ({getattr(error, 'stderr', '') or error})"


class Networks:
    """A network for each name, from `with` on to its end; meanwhile this thread is in the one with the bridge.

    Args:
        names: of the places.

    Attributes:
        addresses: of the places, by name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, start=2)}
        self._here = "10.77.0.1"
        self._middle = f"hr{os.getpid()}"
        self._inside = {name: f"{self._middle}{name}" for name in self.addresses}
        self._own: int | None = None

    def prefix(self, name: str) -> list[str]:
        """What to put before a command so that it runs in that place."""
        # `ip netns exec` would copy this machine's mounts, and keep those alive that another test unmounts.
        return ["nsenter", f"--net=/run/netns/{self._inside[name]}"]

    def listen(self, name: str, port: int) -> socket.socket:
        """A socket of this process that listens at the address of that place."""
        _enter(Path("/run/netns") / self._inside[name])
        try:
            return socket.create_server((self.addresses[name], port))
        finally:
            _enter(Path("/run/netns") / self._middle)

    def cut(self, name: str, *, out: bool, into: bool) -> None:
        """Loses what the place sends (`out`), and what it is sent (`into`)."""
        others = {one: at for one, at in self.addresses.items() if one != name}
        if out:
            for at in (self._here, *others.values()):
                self._lose(self._inside[name], at, "eth0")
        if into:
            self._lose(self._middle, self.addresses[name], "bridge")
            for other in others:
                self._lose(self._inside[other], self.addresses[name], "eth0")

    def part(self, one: str, other: str) -> None:
        """Loses what two places send to each other."""
        self._lose(self._inside[one], self.addresses[other], "eth0")
        self._lose(self._inside[other], self.addresses[one], "eth0")

    def heal(self) -> None:
        """Ends every cut."""
        for space in (self._middle, *self._inside.values()):
            _ip("-netns", space, "neigh", "flush", "nud", "permanent")

    @staticmethod
    def _lose(space: str, address: str, device: str) -> None:
        _ip("-netns", space, "neigh", "replace", address, "lladdr", _NOWHERE, "dev", device,
            "nud", "permanent")  # fmt: skip

    def __enter__(self) -> "Networks":
        try:
            self._make()
            self._own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            _enter(Path("/run/netns") / self._middle)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _make(self) -> None:
        _ip("netns", "add", self._middle)
        _ip("-netns", self._middle, "link", "set", "lo", "up")
        _ip("-netns", self._middle, "link", "add", "bridge", "type", "bridge")
        _ip("-netns", self._middle, "address", "add", f"{self._here}/24", "dev", "bridge")
        _ip("-netns", self._middle, "link", "set", "bridge", "up")
        for number, (name, space) in enumerate(self._inside.items()):
            _ip("netns", "add", space)
            _ip("-netns", self._middle, "link", "add", f"port{number}", "type", "veth",
                "peer", "name", "eth0", "netns", space)  # fmt: skip
            _ip("-netns", self._middle, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-netns", space, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            _ip("-netns", space, "link", "set", "lo", "up")
            _ip("-netns", space, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        if self._own is not None:
            _set(self._own)
            os.close(self._own)
            self._own = None
        for space in (*self._inside.values(), self._middle):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def _enter(space: Path) -> None:
    with _opened(space) as fd:
        _set(fd)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _set(fd: int) -> None:
    """Moves this thread to another network; sockets that it opens from now on are there."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "the network cannot be entered")
