"""A change needs the browser's cookie and its token, and comes from no other site."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from headrace.console.safety import Safety, check_origin
from headrace.gateway.problems import Problem


def request(scheme: str = "http", **headers: str) -> Request:
    named = [(name.replace("_", "-").encode(), each.encode()) for name, each in headers.items()]
    scope: dict[str, Any] = {
        "type": "http", "scheme": scheme, "server": ("localhost", 9879), "path": "/", "query_string": b"",
        "headers": [(b"host", b"localhost:9879"), *named],
    }  # fmt: skip
    return Request(scope)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:1"},
        {"origin": "null"},
    ],
)
def test_another_site_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Problem, match="another site"):
        check_origin(request(**headers).headers)


@pytest.mark.parametrize(
    "headers", [{}, {"sec_fetch_site": "same-origin"}, {"origin": "http://localhost:9879"}]
)
def test_the_console_itself_and_programs_pass(headers: dict[str, str]) -> None:
    check_origin(request(**headers).headers)


def test_a_token_is_good_for_its_browser_alone() -> None:
    safety = Safety()
    mine, other = safety.new_browser(), safety.new_browser()
    sent = request(cookie=f"headrace_console_9879={mine}")
    safety.check(sent, safety.token(mine))
    for wrong in ("", "é", safety.token(other), Safety().token(mine)):
        with pytest.raises(Problem, match="not of this console"):
            safety.check(sent, wrong)
    with pytest.raises(Problem, match="not of this console"):
        safety.check(request(), safety.token(""))


def test_a_cookie_is_kept_from_scripts_and_other_sites() -> None:
    for scheme, name in (
        ("http", "headrace_console_9879"),
        ("https", "__Host-headrace_console_9879"),
    ):
        answer = Response()
        Safety().remember(request(scheme), answer, "x")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{name}=x; HttpOnly; Path=/; SameSite=strict")
        assert ("Secure" in cookie) == (scheme == "https")
