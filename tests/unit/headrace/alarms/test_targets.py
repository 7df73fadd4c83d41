"""Figures are read as Prometheus reads them, and an answer that is none of these is an error."""

import socket
import threading
import urllib.error
from contextlib import suppress
from http.client import HTTPException, InvalidURL

import pytest
from structlog.testing import capture_logs

from headrace.alarms.calls import BoundedCalls
from headrace.alarms.promql.history import Figure
from headrace.alarms.settings import AlarmTarget
from headrace.alarms.targets import ask_targets, figures_of, read_target

TEXT = """\
# HELP headrace_broker_leads x
# TYPE headrace_broker_leads gauge
headrace_broker_leads{group="g\\"1"} 1.0
# TYPE headrace_broker_dead_letters counter
headrace_broker_dead_letters_total{topic="a"} 3.0
"""


def test_figures_have_names_labels_and_values() -> None:
    assert list(figures_of(TEXT)) == [
        Figure("headrace_broker_leads", {"group": 'g"1'}, 1.0),
        Figure("headrace_broker_dead_letters_total", {"topic": "a"}, 3.0),
    ]


def test_a_target_is_read_over_http(posted) -> None:
    posted.text = TEXT
    target = AlarmTarget(url=f"{posted.url}/metrics")
    assert len(read_target(target, timeout_s=60, bytes_max=10_000)) == 2
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_target(target, timeout_s=60, bytes_max=10)
    posted.text = "<html>"
    with pytest.raises(ValueError, match=r"."):
        read_target(target, timeout_s=60, bytes_max=10_000)


@pytest.mark.parametrize("status", [302, 500])
def test_a_target_that_answers_without_success_is_an_error(posted, status: int) -> None:
    posted.status = status
    target = AlarmTarget(url=f"{posted.url}/metrics")
    with pytest.raises(urllib.error.HTTPError):
        read_target(target, timeout_s=60, bytes_max=10_000)


async def test_a_target_that_does_not_answer_says_why_and_others_answer() -> None:
    one, other = AlarmTarget(url="http://a:1/metrics"), AlarmTarget(url="http://b:1/metrics")

    def read(target: AlarmTarget) -> list[Figure]:
        if target is one:
            raise HTTPException
        return []

    answers = await ask_targets([one, other], read, BoundedCalls(), 60.0)
    assert [(each.figures, each.sentence) for each in answers] == [
        (None, "HTTPException"),
        ([], ""),
    ]


@pytest.mark.parametrize("text", ["{, =11E", "<html>", "a{ 1\n", '{"a": 1}', "}{ 1\n", "a,b 1\n"])
def test_an_answer_without_metrics_is_a_value_error_whatever_the_parser_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(figures_of(text))


def test_an_answer_that_trickles_is_given_up_in_time() -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not over.wait(0.01):
                    connection.sendall(b"#")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            target = AlarmTarget(url=f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
            with pytest.raises(TimeoutError):
                read_target(target, timeout_s=1, bytes_max=10_000_000)
        finally:
            over.set()
            thread.join()


def test_an_answer_that_ends_too_early_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\na 1\n")

        thread = threading.Thread(target=serve)
        thread.start()
        target = AlarmTarget(url=f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        with pytest.raises(HTTPException):
            read_target(target, timeout_s=60, bytes_max=10_000)
        thread.join()


async def test_a_bug_with_one_target_is_logged_and_others_answer() -> None:
    one, other = AlarmTarget(url="http://a:1/metrics"), AlarmTarget(url="http://b:1/metrics")

    def read(target: AlarmTarget) -> list[Figure]:
        if target is one:
            raise KeyError("le")
        return []

    with capture_logs() as logs:
        answers = await ask_targets([one, other], read, BoundedCalls(), 60.0)
    assert [each.figures for each in answers] == [None, []]
    assert [each["log_level"] for each in logs] == ["error"]


async def test_an_address_that_is_not_valid_is_not_shown() -> None:
    def read(_: AlarmTarget) -> list[Figure]:
        raise InvalidURL("nonnumeric port: 'hunter2'")

    target = AlarmTarget(url="http://a:1/metrics")
    (answer,) = await ask_targets([target], read, BoundedCalls(), 60.0)
    assert answer.sentence == "the address is not valid"
