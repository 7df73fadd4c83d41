"""
Every limit of the HTTP gateway with its default, its unit and its reason, validated once.

Values only. `headrace run` fills them from its options.
"""

from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["GatewaySettings"]


class GatewaySettings(BaseModel):
    """How a gateway listens, and what it takes on.

    Raises:
        ValueError: a value is out of its range, or a default beyond its own maximum.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # This machine alone. Another address needs TLS and tokens, or `insecure`.
    host: str = "127.0.0.1"
    # 0 takes a free one.
    port: int = Field(default=8080, ge=0, le=65_535)
    # PEM files with the gateway's certificate (and those that lead to its authority), and with its key, which
    # no other user may read. With them it speaks HTTPS alone, with TLS 1.3. New files are used within 10 s.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # Listen to other machines without TLS or without tokens: behind a proxy that has both, or between two
    # containers.
    insecure: bool = False
    # A file with a line for each token, `NAME:ROLE,ROLE:SHA256`, as `headrace token make` writes it. With it each
    # client needs a token. A new file is used within 10 s.
    tokens: Path | None = None
    # Where an issuer of signed tokens (JWT) publishes its keys, such as https://login.example/keys. With it a
    # client may have such a token instead of one of the file. The keys are fetched again every 10 minutes. It needs
    # the extra `jwt`.
    jwks_url: str | None = None
    # Who issues these tokens, and for whom: a token is good if its `iss` is this one, and one of its `aud` among
    # these. Both are needed with `jwks_url`: an issuer makes tokens for other audiences, too.
    jwt_issuer: str = ""
    jwt_audience: tuple[str, ...] = ()
    # How tokens may be signed. All three have a public key: who can check a token cannot make one.
    jwt_algorithms: tuple[Literal["RS256", "ES256", "EdDSA"], ...] = ("RS256", "ES256", "EdDSA")
    # The claim with the roles: a list, or text with spaces between. With dots it is a part of a claim, such as
    # realm_access.roles.
    jwt_roles_claim: str = "roles"
    # How far the issuer's clock may be off.
    jwt_leeway_ms: int = Field(default=30_000, ge=0, le=300_000)
    # Names by which requests may address the gateway, besides `host`, localhost and plain IP addresses;
    # `*.example.com` is all below it, `*` any. A web page that gives its own name the gateway's address
    # (DNS rebinding) would otherwise read and command with its visitor's browser.
    hosts: tuple[str, ...] = ()
    # Origins whose pages may call the gateway from a browser, such as `https://shop.example`; `*` is any.
    # None: only pages that come from the gateway's own origin.
    origins: tuple[str, ...] = ()

    # A command is a wish of a few hundred bytes; four of the largest fit into a frame of the queue.
    body_bytes_max: int = Field(default=1_048_576, ge=1)
    # A body of that size takes this long at 1 Mbit/s; a slower client holds up a place.
    body_ms: int = Field(default=10_000, ge=1)
    # Requests at work at once; each may hold a body, so this times `body_bytes_max` bounds memory.
    requests_max: int = Field(default=256, ge=1)
    # Open connections, most of them idle between requests.
    connections_max: int = Field(default=1_024, ge=1)
    # Connections of one address; beyond it the oldest one is closed that keeps us waiting for a request or
    # the rest of one. Half of `requests_max`, so that one slow client leaves room; behind a proxy as many
    # as `connections_max`.
    connections_per_address_max: int = Field(default=128, ge=1)
    # The head of a request takes a packet or two; a slower client holds up a connection.
    head_ms: int = Field(default=10_000, ge=1)
    # An idle connection is closed after this; longer than the pause between two calls of a script.
    idle_ms: int = Field(default=5_000, ge=1_000)

    # How long a request waits for a result or a read model where it does not say: below the 30 s
    # after which many proxies give up.
    wait_ms: int = Field(default=10_000, ge=1)
    # The longest wait that a request may ask for; it holds one of `requests_max` places.
    wait_ms_max: int = Field(default=60_000, ge=1)

    # Event streams that may be open; each takes one of `requests_max` places, and half is left for others.
    streams_max: int = Field(default=128, ge=0)
    # A projection with event streams is looked at so often, once for all of them: a person sees no delay,
    # and the database four small queries a second.
    stream_look_ms: int = Field(default=250, ge=1)
    # A silent event stream sends a comment after this long, and reads its rows again: below the 60 s after
    # which many proxies close a silent connection.
    stream_beat_ms: int = Field(default=15_000, ge=1)

    # Rows of a page where the request does not say, and the most it may ask for: some hundred
    # kilobytes of JSON.
    page_rows: int = Field(default=100, ge=1)
    page_rows_max: int = Field(default=1_000, ge=1)

    # What `Retry-After` says: a restarted broker is back after about this long.
    retry_after_s: int = Field(default=1, ge=1)
    # Bound of each check of `/ready`; orchestrators give up after a few seconds.
    check_ms: int = Field(default=2_000, ge=1)
    # An answer of `/ready` is given again for this long, so that asking often costs nothing.
    ready_cache_ms: int = Field(default=1_000, ge=0)

    # How long requests under way may take once the gateway stops; then they are cut off. Below the
    # 30 s after which orchestrators kill.
    stop_ms: int = Field(default=10_000, ge=1)

    @model_validator(mode="after")
    def _check_defaults(self) -> "GatewaySettings":
        for name, value, most in (
            ("wait_ms", self.wait_ms, self.wait_ms_max),
            ("page_rows", self.page_rows, self.page_rows_max),
        ):
            if value > most:
                raise ValueError(f"{name} is {value}, more than {name}_max, which is {most}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together: name both files, or none")
        self._check_issuer()
        return self

    def _check_issuer(self) -> None:
        if self.jwks_url is None:
            if self.jwt_issuer or self.jwt_audience:
                raise ValueError(
                    "jwt_issuer and jwt_audience need jwks_url: where the issuer's keys are"
                )
            return
        if not (self.jwt_issuer and self.jwt_audience and self.jwt_algorithms):
            raise ValueError(
                "jwks_url needs jwt_issuer and jwt_audience: a token counts if it is of that issuer and for that"
                " audience; and at least one of jwt_algorithms"
            )
        parts = urlsplit(self.jwks_url)
        if not (parts.hostname and (parts.scheme == "https" or _is_here(parts))):
            raise ValueError(
                f"jwks_url is {self.jwks_url!r}: write https://HOST/PATH, or http:// for 127.0.0.1; keys that"
                " others can change on their way let everyone in"
            )

    @property
    def asks_for_tokens(self) -> bool:
        """Whether clients have to say who they are."""
        return self.tokens is not None or self.jwks_url is not None


def _is_here(parts: SplitResult) -> bool:
    return parts.scheme == "http" and parts.hostname in {"127.0.0.1", "::1", "localhost"}
