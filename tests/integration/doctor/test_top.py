"""`headrace top` in a terminal of its own, with a real broker: rates, keys, a broker that goes and comes back."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS_MAX = 60


class Terminal:
    """The far end of a terminal in which a program runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", file: int) -> None:
        self.process, self._file, self.text = process, file, ""

    def shows(self, part: str, since: int = 0) -> int:
        """Returns the place behind a part that is shown after a place, once it is."""
        deadline = time.monotonic() + SECONDS_MAX
        while part not in self.text[since:]:
            assert time.monotonic() < deadline, self.text[-2_000:]
            if select.select([self._file], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._file, 1 << 16).decode("utf-8", "replace")
                except OSError:  # the program has ended
                    assert part in self.text[since:], self.text[-2_000:]
        return self.text.index(part, since) + len(part)

    def press(self, keys: str) -> None:
        os.write(self._file, keys.encode())


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {"TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_view_shows_rates_sorts_by_keys_and_ends_with_one(deployment: Any) -> None:
    deployment.broker()
    to_broker = ("--broker", deployment.address)
    deployment.run("topic", "create", "orders", "--queues", "1", *to_broker)
    deployment.run("group", "reset", "kitchen", "--topic", "orders", "--earliest", *to_broker)
    with terminal("top", "--every", "0.2", *to_broker) as view:
        view.shows("sorted by messages")
        deployment.run("message", "send", "orders", "tea", *to_broker)
        view.shows("kitchen", view.shows("orders"))
        for key, name in (("n", "name"), ("b", "bytes"), ("l", "lag"), ("m", "messages")):
            place = len(view.text)
            view.press(key)
            view.shows(f"sorted by {name}", place)
        view.press("q")
        view.shows("\x1b[?1049l")
        assert view.process.wait(SECONDS_MAX) == 0


def test_a_view_goes_on_when_its_broker_is_back(deployment: Any) -> None:
    broker = deployment.broker()
    with terminal("top", "--every", "0.2", "--broker", deployment.address) as view:
        view.shows("takes messages: yes")
        broker.kill()
        broker.communicate()
        place = view.shows("no answer")
        deployment.broker_again()
        view.shows("q: end", place)
        view.process.send_signal(signal.SIGINT)
        assert view.process.wait(SECONDS_MAX) == 0


def test_a_page_shows_the_replicas_of_a_group(deployment: Any, postgres_database: str) -> None:
    deployment.broker("--record", postgres_database, data="a")
    leader = deployment.address
    deployment.broker_of_a_group(postgres_database, "b")
    deadline = time.monotonic() + SECONDS_MAX
    page = ""
    while "replicas 1" not in page:
        assert time.monotonic() < deadline, page
        page = deployment.run("top", "--once", "--every", "0.2", "--broker", leader)
    assert "replica " in page


def test_a_user_without_permission_sees_what_is_missing(deployment: Any) -> None:
    folder = deployment.folder
    for name in ("root", "ann"):
        (folder / f"{name}.txt").write_text(f"the password of {name}", encoding="utf-8")
        (folder / f"{name}.txt").chmod(0o600)
    deployment.run(
        "user", "add", "root", "--admin", "--data", "broker", "--new-password-file", "root.txt"
    )
    deployment.broker("--login")
    root = f"tcp://{deployment.address}?user=root&password_file=root.txt"
    deployment.run("user", "add", "ann", "--new-password-file", "ann.txt", "--broker", root)
    ann = f"tcp://{deployment.address}?user=ann&password_file=ann.txt"
    page = deployment.run("top", "--once", "--every", "0.2", "--broker", ann)
    assert "takes messages" not in page
    assert "ann" in page.splitlines()[1]
    assert "takes messages: yes" in deployment.run(
        "top", "--once", "--every", "0.2", "--broker", root
    )
    deployment.run("acl", "allow", "ann", "read", "cluster", "--broker", root)
    assert "takes messages: yes" in deployment.run(
        "top", "--once", "--every", "0.2", "--broker", ann
    )
