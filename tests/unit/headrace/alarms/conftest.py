"""Alarms and settings for the tests of this room, and a server that takes what is posted."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.alarms.board import RaisedAlarm
from headrace.alarms.settings import AlarmSettings


@pytest.fixture
def alarm() -> Callable[..., RaisedAlarm]:
    def make(rule: str = "HeadraceBrokerDown", **labels: str) -> RaisedAlarm:
        return RaisedAlarm(rule, "critical", labels, 1.0, f"{rule} happened", 10.0, 70.0)

    return make


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., AlarmSettings]:
    def make(**values: Any) -> AlarmSettings:
        target = {"url": "http://127.0.0.1:1/metrics"}
        return AlarmSettings(**{"folder": tmp_path / "alarms", "target": [target], **values})

    return make


class Posted:
    """A server of HTTP in this process.

    Attributes:
        url: where it is.
        requests: path, headers and JSON of each POST.
        status: that it answers with.
        text: that it answers a GET with.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.text = ""


@pytest.fixture
def posted() -> Iterator[Posted]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append((self.path, dict(self.headers), json.loads(body)))
            self._answer("")

        def do_GET(self) -> None:
            self._answer(found.text)

        def _answer(self, text: str) -> None:
            self.send_response(found.status)
            if found.status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Posted(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()
