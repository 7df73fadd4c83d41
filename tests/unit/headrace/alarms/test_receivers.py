"""Messages reach webhooks and mail servers; secrets come from files, go over TLS, and stand in no error."""

import socket
import ssl
import threading
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from headrace.alarms.outbox import AlarmMessage
from headrace.alarms.receivers import FAILURES, MailReceiver, WebhookReceiver, receivers_of
from headrace.alarms.settings import MailSettings, WebhookSettings
from headrace.errors import HeadraceError


@pytest.fixture
def message(alarm: Callable[..., Any]) -> AlarmMessage:
    return AlarmMessage("firing", alarm(instance="a:1"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    return file


def webhook(**values: Any) -> WebhookReceiver:
    return WebhookReceiver(WebhookSettings(name="duty", **values), 60)


def test_a_webhook_gets_a_message_as_json(posted, message, secret) -> None:
    webhook(url=f"{posted.url}/hook", token_file=secret).send(message)
    ((path, headers, body),) = posted.requests
    assert (path, headers["Authorization"]) == ("/hook", "Bearer hunter2")
    assert body == {
        "state": "firing",
        "alarm": "HeadraceBrokerDown",
        "severity": "critical",
        "summary": "HeadraceBrokerDown happened",
        "labels": {"instance": "a:1"},
        "value": 1.0,
        "since": "1970-01-01T00:00:10+00:00",
        "runbook": "docs/alarms.md#headracebrokerdown",
    }


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_webhook_that_answers_without_success_has_failed(posted, message, status: int) -> None:
    posted.status = status
    with pytest.raises(urllib.error.HTTPError):
        webhook(url=posted.url).send(message)
    assert len(posted.requests) == 1


def test_the_address_of_a_webhook_may_be_a_secret(posted, message, tmp_path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{posted.url}/secret-path\n")
    file.chmod(0o600)
    webhook(url_file=file).send(message)
    assert posted.requests[0][0] == "/secret-path"
    for wrong in (
        "ftp://host/secret-path",
        "http://host/secret path",
        "http://ann:secret@host/",
        "http://ann:secret/@host/",
    ):
        file.write_text(wrong)
        with pytest.raises(HeadraceError) as told:
            webhook(url_file=file).send(message)
        assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("mode", "text", "complaint"),
    [(0o604, "x", "chmod 600"), (0o600, "", "is empty"), (0o600, "a\nb", "more than one line")],
)
def test_a_secret_that_cannot_be_used_is_a_sentence(
    message, secret, mode: int, text: str, complaint: str
) -> None:
    secret.write_text(text)
    secret.chmod(mode)
    with pytest.raises(HeadraceError, match=complaint):
        webhook(url="http://127.0.0.1:1/", token_file=secret).send(message)


def test_a_file_that_is_missing_is_a_failure(message, tmp_path) -> None:
    with pytest.raises(FAILURES, match="No such file"):
        webhook(url_file=tmp_path / "gone").send(message)


@contextmanager
def mail_server(certificate: tuple[Path, Path] | None = None) -> Iterator[tuple[int, list[str]]]:
    """A mail server for one message; what it heard, with a mark where TLS began."""
    heard: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        stream = connection.makefile("rwb", buffering=0)
        stream.write(b"220 ready\r\n")
        while line := stream.readline().decode().rstrip("\r\n"):
            heard.append(line)
            word = line.split()[0].upper()
            if word == "EHLO":
                stream.write(b"250-here\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n")
            elif word == "STARTTLS" and certificate is not None:
                stream.write(b"220 go\r\n")
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(*certificate)
                connection = context.wrap_socket(connection, server_side=True)
                stream = connection.makefile("rwb", buffering=0)
                heard.append("TLS")
            elif word == "DATA":
                stream.write(b"354 go\r\n")
                lines = []
                while (part := stream.readline().decode()) != ".\r\n":
                    lines.append(part)
                heard.append("".join(lines))
                stream.write(b"250 taken\r\n")
            elif word == "QUIT":
                stream.write(b"221 bye\r\n")
                break
            else:
                stream.write(b"235 in\r\n" if word == "AUTH" else b"250 fine\r\n")
        stream.close()
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1], heard
    thread.join(60)
    listener.close()


def mail(port: int, **values: Any) -> MailReceiver:
    settings = {
        "name": "team", "host": "localhost", "port": port, "sender": "headrace@a.example",
        "recipients": ["ann@b.example", "bob@b.example"],
    }  # fmt: skip
    return MailReceiver(MailSettings(**(settings | values)), 60)


def test_a_mail_says_what_happened_and_what_to_do(alarm) -> None:
    message = AlarmMessage("firing", alarm(group="kitchen\nBcc: evil@c.example"))
    with mail_server() as (port, heard):
        mail(port, security="none").send(message)
    (text,) = (one for one in heard if one.startswith("Subject"))
    said = message_from_string(text, policy=default)
    assert said["Subject"] == "[firing] critical: HeadraceBrokerDown happened"
    assert said["To"] == "ann@b.example, bob@b.example"
    assert said["Bcc"] is None
    assert "What to do: docs/alarms.md#headracebrokerdown" in said.get_content()


def test_a_line_feed_in_a_summary_does_not_end_the_subject(alarm) -> None:
    import msgspec

    one = msgspec.structs.replace(alarm(), summary="topic a\nBcc: evil@c.example")
    with mail_server() as (port, heard):
        mail(port, security="none").send(AlarmMessage("firing", one))
    assert not any(one.upper().startswith("RCPT") and "evil" in one for one in heard)
    assert sum(one.upper().startswith("RCPT") for one in heard) == 2


def test_a_password_of_mail_goes_over_tls_alone(message, secret, tmp_path, authority) -> None:
    own, key = authority.issue(tmp_path, "localhost")
    ca = authority.write(tmp_path)
    with mail_server((own, key)) as (port, heard):
        mail(port, user="ann", password_file=secret, ca=ca).send(message)
    words = [one.split()[0] for one in heard]
    assert words.index("TLS") < words.index("AUTH")
    assert words[0].upper() == "EHLO"


def test_receivers_are_those_of_the_settings(settings) -> None:
    hook = {"name": "duty", "url": "https://hooks.example/x"}
    team = {"name": "team", "host": "h", "sender": "a@b.example", "recipients": ["c@d.example"]}
    found = receivers_of(settings(webhook=[hook], mail=[team]))
    assert [one.name for one in found] == ["duty", "team"]
