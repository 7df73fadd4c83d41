"""
Every limit of the console with its default, its unit and its reason, validated once.

Used by `headrace console`, which fills it from its options. Values only.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.gateway.settings import GatewaySettings

__all__ = ["ConsoleSettings"]


class ConsoleSettings(BaseModel):
    """How a console listens, and what it takes on.

    Raises:
        ValueError: a value is out of its range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # This machine alone. Another address needs TLS and a broker with a login, or `insecure`.
    host: str = "127.0.0.1"
    # 0 takes a free one.
    port: int = Field(default=9_879, ge=0, le=65_535)
    # A PEM file with the console's certificate. With it and its key the console speaks HTTPS alone, with TLS 1.3. New
    # files are used within 10 s.
    certificate: Path | None = None
    # A PEM file with the key of that certificate, which no other user may read.
    key: Path | None = None
    # Listen to other machines without TLS or without a login: behind a proxy that has both.
    insecure: bool = False
    # Names by which browsers may address the console, besides `host`, localhost and plain IP addresses.
    hosts: tuple[str, ...] = ()
    # People who are signed in at once; each has a connection to the broker.
    sessions_max: int = Field(default=100, ge=1)
    # A session ends after this time without a request: a browser that was left open is no door for long.
    idle_ms: int = Field(default=1_800_000, ge=1_000)
    # A session ends after this time in any case: a working day.
    session_ms: int = Field(default=28_800_000, ge=1_000)
    # How often open overviews get new figures; each look costs the broker some milliseconds.
    live_ms: int = Field(default=1_000, ge=100)
    # Open overviews at once; each asks the broker for itself.
    streams_max: int = Field(default=32, ge=0)
    # A change that takes longer goes on by itself, and a page says how far it is: browsers do not wait for ever.
    change_wait_ms: int = Field(default=2_000, ge=0)
    # Changes that go on at once; more would compete for the broker.
    changes_max: int = Field(default=20, ge=1)
    # How long the broker may take to answer one question.
    timeout_ms: int = Field(default=5_000, ge=1)
    # The fields of a form or of a request in JSON.
    body_bytes_max: int = Field(default=65_536, ge=1)

    @model_validator(mode="after")
    def _check_pair(self) -> "ConsoleSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together: name both files, or none")
        return self

    @property
    def listening(self) -> GatewaySettings:
        """How the console's server listens."""
        return GatewaySettings(
            host=self.host,
            port=self.port,
            tls_certificate=self.certificate,
            tls_key=self.key,
            insecure=self.insecure,
            hosts=self.hosts,
            body_bytes_max=self.body_bytes_max,
        )
