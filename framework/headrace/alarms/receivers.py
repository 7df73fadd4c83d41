"""
Those who get messages: webhooks by POST, and people by mail. Blocking, so the watcher calls them in threads.

    {"state": "firing", "alarm": "HeadraceBrokerDown", "severity": "critical", "summary": …, "labels": {…}, …}

Used by the watcher and by `headrace alarms test`; uses the standard library alone. Secrets are read from files for each
message, so that a new one counts at once, and they stand in no log.
"""

import os
import smtplib
import ssl
import stat
import urllib.request
from datetime import UTC, datetime
from email.message import EmailMessage
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from headrace._runtime.web.opener import opener
from headrace.alarms.outbox import AlarmMessage
from headrace.alarms.rules.table import rule_of
from headrace.alarms.settings import AlarmSettings, MailSettings, WebhookSettings, require_http
from headrace.errors import HeadraceError

__all__ = ["FAILURES", "MailReceiver", "Receiver", "WebhookReceiver", "contents", "receivers_of"]

# What a receiver that is away, or refuses, makes of a message.
FAILURES: Final = (HeadraceError, OSError, HTTPException, smtplib.SMTPException, ValueError)
_SECRET_BYTES_MAX: Final = 4_096


class Receiver(Protocol):
    """Gets messages."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def send(self, message: AlarmMessage) -> None:
        """Sends a message; blocks. Raises one of `FAILURES`."""
        ...


def receivers_of(settings: AlarmSettings) -> list[Receiver]:
    """Returns all receivers of the settings."""
    timeout_s = settings.timeout_ms / 1_000
    return [
        *(WebhookReceiver(each, timeout_s) for each in settings.webhook),
        *(MailReceiver(each, timeout_s) for each in settings.mail),
    ]


def contents(message: AlarmMessage) -> dict[str, Any]:
    """Returns a message with names for programs."""
    alarm = message.alarm
    since = datetime.fromtimestamp(alarm.since_s, UTC).isoformat(timespec="seconds")
    return {
        "state": message.state,
        "alarm": alarm.rule,
        "severity": alarm.severity,
        "summary": alarm.summary,
        "labels": alarm.labels,
        "value": alarm.value,
        "since": since,
        "runbook": rule_of(alarm.rule).runbook,
    }


class WebhookReceiver:
    """An address that gets JSON.

    Args:
        settings: where it is.
        timeout_s: how long it may take.
    """

    def __init__(self, settings: WebhookSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """What it is called."""
        return self._settings.name

    def send(self, message: AlarmMessage) -> None:
        """Posts a message; any answer of success counts. Raises one of `FAILURES`."""
        url = self._settings.url
        if self._settings.url_file is not None:
            url = _secret(self._settings.url_file)
        try:
            require_http(url)
        except ValueError as error:
            raise HeadraceError(f"webhook {self.name}: {error}") from None
        headers = {"Content-Type": "application/json", "User-Agent": "headrace-alarms"}
        if self._settings.token_file is not None:
            headers["Authorization"] = f"Bearer {_secret(self._settings.token_file)}"
        body = msgspec.json.encode(contents(message))
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - http or https
        with opener(self._settings.ca).open(request, timeout=self._timeout_s):
            pass


class MailReceiver:
    """People who get mail.

    Args:
        settings: who, and by which server.
        timeout_s: how long the server may take for one answer.
    """

    def __init__(self, settings: MailSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """What it is called."""
        return self._settings.name

    def send(self, message: AlarmMessage) -> None:
        """Sends a mail. Raises one of `FAILURES`."""
        its = self._settings
        with self._connected() as server:
            if its.security == "starttls":
                server.starttls(context=_context(its.ca))
            if its.password_file is not None:
                server.login(its.user, _secret(its.password_file))
            server.send_message(self._written(message))

    def _connected(self) -> smtplib.SMTP:
        its = self._settings
        if its.security == "tls":
            context = _context(its.ca)
            return smtplib.SMTP_SSL(its.host, its.port, timeout=self._timeout_s, context=context)
        return smtplib.SMTP(its.host, its.port, timeout=self._timeout_s)

    def _written(self, message: AlarmMessage) -> EmailMessage:
        said = contents(message)
        mail = EmailMessage()
        # A label may hold a line feed; in the head of a mail that would begin another line of it.
        head = f"[{said['state']}] {said['severity']}: {said['summary']}"
        mail["Subject"] = "".join(one if one.isprintable() else " " for one in head)[:200]
        mail["From"] = self._settings.sender
        mail["To"] = ", ".join(self._settings.recipients)
        lines = [f"{name}: {said[name]}" for name in ("summary", "alarm", "state", "severity")]
        lines += [f"{name}: {value}" for name, value in sorted(said["labels"].items())]
        lines += [f"{name}: {said[name]}" for name in ("value", "since")]
        mail.set_content("\n".join([*lines, "", f"What to do: {said['runbook']}", ""]))
        return mail


def _context(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=None if ca is None else str(ca))


def _secret(file: Path) -> str:
    """The text of a file that others cannot read."""
    try:
        mode = file.stat().st_mode
        if os.name == "posix" and stat.S_ISREG(mode) and mode & stat.S_IRWXO:
            raise HeadraceError(f"other users can read {file}; run chmod 600 {file}")
        with file.open("rb") as opened:
            text = opened.read(_SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise HeadraceError(f"{file} cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise HeadraceError(f"{file} is empty, or has more than one line")
    return text
