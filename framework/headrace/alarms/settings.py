"""
What is watched, who gets messages, and every limit of the watcher with its default, its unit and its reason, validated once.

Used by `headrace alarms` and the console, which read it from a file. Values only.
"""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["AlarmSettings", "AlarmTarget", "MailSettings", "WebhookSettings", "require_http"]

_FROZEN = ConfigDict(frozen=True, extra="forbid")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def require_http(url: str) -> None:
    """Lets an address of HTTP through; what is wrong is said without the address, which may hold a secret.

    Raises:
        ValueError: it is none, or has a user or a password in it.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text may show a part of the address
        known = False
    if known and "@" in parts.netloc:
        raise ValueError(
            "this address has a user or a password in it, which logs and lists would show; leave"
            " out all up to the @, and use token_file of a webhook"
        )
    if not known or any(map(str.isspace, url)):
        raise ValueError("this is no address; write http://HOST:PORT/PATH or https://…")


class AlarmTarget(BaseModel):
    """A process that answers with metrics."""

    model_config = _FROZEN

    # What it is: `headrace-broker`, `headrace-nameserver` or `headrace-run`; rules ask for these names.
    job: Literal["headrace-broker", "headrace-nameserver", "headrace-run"] = "headrace-broker"
    # Where its metrics are: http://HOST:PORT/metrics.
    url: str
    # Believe the authorities in this PEM file, for https.
    ca: Path | None = None

    @model_validator(mode="after")
    def _check(self) -> "AlarmTarget":
        require_http(self.url)
        return self

    @property
    def instance(self) -> str:
        """What alarms call it: host and port."""
        return urlsplit(self.url).netloc


class WebhookSettings(BaseModel):
    """An address that gets each message as JSON, by POST."""

    model_config = _FROZEN

    # What it is called in logs and in the state.
    name: str
    # The address. One with a secret in it stands in `url_file` instead.
    url: str = ""
    # A file with the address alone, which no other user may read.
    url_file: Path | None = None
    # A file with a token alone; it is sent as `Authorization: Bearer`.
    token_file: Path | None = None
    # Believe the authorities in this PEM file, for https.
    ca: Path | None = None

    @model_validator(mode="after")
    def _check(self) -> "WebhookSettings":
        if bool(self.url) == (self.url_file is not None):
            raise ValueError(f"webhook {self.name!r}: name either url or url_file")
        if self.url:
            require_http(self.url)
            parts = urlsplit(self.url)
            if self.token_file and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
                raise ValueError(f"webhook {self.name!r}: a token needs https, or a local address")
        return self


class MailSettings(BaseModel):
    """A server that sends each message as mail."""

    model_config = _FROZEN

    # What it is called in logs and in the state.
    name: str
    # The server.
    host: str
    # Its port: 587 for `starttls`, 465 for `tls`.
    port: int = Field(default=587, ge=1, le=65_535)
    # How the connection is protected; `none` is for a server on this machine.
    security: Literal["starttls", "tls", "none"] = "starttls"
    # The name to log in with; empty: no login.
    user: str = ""
    # A file with the password alone, which no other user may read.
    password_file: Path | None = None
    # The sender's address.
    sender: str
    # The addresses of those who get it.
    recipients: tuple[str, ...] = Field(min_length=1)
    # Believe the authorities in this PEM file.
    ca: Path | None = None

    @model_validator(mode="after")
    def _check(self) -> "MailSettings":
        if bool(self.user) != (self.password_file is not None):
            raise ValueError(f"mail {self.name!r}: user and password_file go together")
        if self.security == "none" and self.host not in _LOOPBACK:
            raise ValueError(
                f"mail {self.name!r}: security = 'none' is for a server on this machine; use"
                " 'starttls' or 'tls'"
            )
        for each in (self.sender, *self.recipients):
            if "@" not in each or any(one.isspace() or one == "," for one in each):
                raise ValueError(f"mail {self.name!r}: {each!r} is no address of mail")
        return self


class AlarmSettings(BaseModel):
    """What is watched, and who gets messages.

    Raises:
        ValueError: a value is out of its range.
    """

    model_config = _FROZEN

    # Where the watcher keeps what it knows, and silences: they outlast a restart.
    folder: Path = Path("var/alarms")
    # How often the figures are read; as often as Prometheus does it in our example.
    every_ms: int = Field(default=15_000, ge=1_000)
    # An alarm that goes on is sent again after this time: someone may have missed it.
    repeat_ms: int = Field(default=14_400_000, ge=60_000)
    # How long a process, a webhook or a mail server may take to answer.
    timeout_ms: int = Field(default=10_000, ge=100)
    # A receiver that fails is tried again after `every_ms`, then twice that, and at last after this time.
    retry_ms_max: int = Field(default=300_000, ge=1_000)
    # Messages to one receiver in one round; the rest follow in the next ones, the worst first.
    messages_max: int = Field(default=20, ge=1)
    # Alarms that are kept at once; more of them are counted.
    alarms_max: int = Field(default=1_000, ge=1)
    # Series whose values are kept; each takes up to 40 KiB. More of them are left out, with a line in the log.
    series_max: int = Field(default=50_000, ge=1)
    # The metrics of one process: 50,000 series take about 8 MiB.
    body_bytes_max: int = Field(default=33_554_432, ge=1_024)
    # The processes to watch.
    target: tuple[AlarmTarget, ...] = Field(min_length=1)
    # Who gets messages by HTTP.
    webhook: tuple[WebhookSettings, ...] = ()
    # Who gets messages by mail.
    mail: tuple[MailSettings, ...] = ()

    @property
    def services(self) -> list[tuple[str, Path | None]]:
        """Addresses of processes of an application, each with the file of the authorities to believe."""
        return [(one.url, one.ca) for one in self.target if one.job == "headrace-run"]

    @model_validator(mode="after")
    def _check(self) -> "AlarmSettings":
        names = [*(one.name for one in self.webhook), *(one.name for one in self.mail)]
        if len(set(names)) < len(names):
            raise ValueError("two receivers have one name; choose another for one of them")
        instances = [(one.job, one.instance) for one in self.target]
        if len(set(instances)) < len(instances):
            raise ValueError("two targets have one host and port; name each process once")
        return self
