"""What is asked over HTTP is asked where you said, and nowhere else."""

import threading
import urllib.error
from http.client import InvalidURL
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headrace._runtime.web.opener import failure, opener


def test_a_redirect_is_not_followed() -> None:
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(urllib.error.HTTPError, match="302"):
            opener().open(f"http://127.0.0.1:{server.server_port}/here", timeout=120)
        thread.join()
    assert asked == ["/here"]


def test_a_file_of_authorities_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        opener(tmp_path / "ca.pem")


def test_an_error_about_an_address_does_not_show_it() -> None:
    assert failure(InvalidURL("nonnumeric port: 'hunter2'")) == "the address is not valid"
    assert (failure(OSError("refused")), failure(OSError())) == ("refused", "OSError")
