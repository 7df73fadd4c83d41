"""
The settings of name servers, and of what a broker tells them; each with its default, its unit and its reason.

Values only; used by the command line, by `settings`, by the name server and by the broker's registration.
"""

from pathlib import Path

import msgspec

from headrace_mq._runtime.checks import (
    require,
    require_near,
    require_secure,
    require_tls,
    require_types,
    require_vanished,
)

__all__ = ["NAME_SERVER_PORT", "NameServerSettings", "NamesSettings"]

# Next to the broker's.
NAME_SERVER_PORT = 9875


class NamesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker tells name servers of itself. A broker of a group has the names and the address of its group."""

    # The name servers, all of them: HOST:PORT,HOST:PORT, or tls://HOST:PORT,HOST:PORT?ca=FILE with what else an address takes.
    # The broker registers with each.
    servers: str
    # Of a broker without a record: the name of the cluster.
    cluster: str = "default"
    # Of a broker without a record: the name that clients know it by. Each such broker of a cluster has one of its own.
    name: str = "g1"
    # Of a broker without a record: HOST:PORT at which clients reach it; None: where it listens.
    advertise: str | None = None

    def __post_init__(self) -> None:
        require_types(self)
        require(bool(self.servers), "name at least one name server, HOST:PORT")
        require(bool(self.cluster and self.name), "cluster and name must not be empty")


class NameServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a name server listens, and its limits."""

    # By default only programs on this machine can connect. Another address needs TLS, and `login` or `tls_client_ca`, or
    # it needs `insecure`.
    host: str = "127.0.0.1"
    # 0: it takes a free port and prints it in the ready line.
    port: int = NAME_SERVER_PORT
    # PEM files with its certificate and its key, as a broker has them. New files are used within 10 s, or at once after SIGHUP.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # A PEM file with authorities. If you set it, brokers and clients must show a certificate that one of them signed.
    tls_client_ca: Path | None = None
    # Answer only users that have logged in. Brokers need one that may administer the cluster; each other user may ask.
    login: bool = False
    # With `login`: the folder with the users, which `headrace user add --data` made, or that of a broker on this machine. They are
    # read at the start and after SIGHUP. Nothing is written there.
    data: Path | None = None
    # Listen to other machines without TLS or without a login: who gets there may send clients to other brokers.
    insecure: bool = False
    # HOST:PORT where `GET /metrics` answers with figures for Prometheus; None: nowhere.
    metrics: str | None = None
    # Brokers that are known at a time; less than 2 KiB each. More are refused.
    registrations_max: int = 1_024
    # A broker that says nothing for this long is forgotten: ten times in which it should have said something.
    expiry_ms: int = 10_000
    # How long after its start it answers that it is not ready: each broker says where it is within one second.
    not_ready_ms: int = 2_000
    # Requests of one connection in a second; more are refused. A broker needs one, and a client one in 30 seconds.
    requests_per_second_max: int = 50
    # Connections at a time, one for each broker and for a moment one for each client that asks.
    connections_max: int = 4_096
    # The part of them from one address.
    connections_per_address_max: int = 1_024
    # How long a connection may take until it has said HELLO, and logged in.
    login_ms_max: int = 10_000
    # A request: a broker's names and addresses have less than 4 KiB.
    frame_bytes_max: int = 64 << 10
    # If a client vanishes (power, cable), this is noticed after half of this time without a byte from it.
    vanished_ms_max: int = 60_000

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.port <= 65_535, "port must be 0 to 65535")
        require_tls(self.tls_certificate, self.tls_key, self.tls_client_ca)
        require(
            self.login == (self.data is not None),
            "login and data go together: data (--data) is the folder with the users that may log in",
        )
        require_secure(
            self.host,
            secured=self.tls_certificate is not None,
            known=self.login or self.tls_client_ca is not None,
            insecure=self.insecure,
        )
        if self.metrics is not None:
            require_near(self.metrics, insecure=self.insecure)
        require_vanished(self.vanished_ms_max)
        for name in (
            "registrations_max", "expiry_ms", "requests_per_second_max", "connections_max",
            "connections_per_address_max", "login_ms_max", "frame_bytes_max",
        ):  # fmt: skip
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.not_ready_ms >= 0, "not_ready_ms must not be negative")
