"""
Checks of values that a user gives: each refusal names the value and says what is allowed.

Used by settings. Pure. msgspec checks types when it decodes and not when
a program constructs, so settings ask here.
"""

import ipaddress
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

__all__ = [
    "BUSY_POLL_US_MAX",
    "is_loopback",
    "place_of",
    "require",
    "require_busy_poll",
    "require_near",
    "require_pauses",
    "require_secure",
    "require_tls",
    "require_types",
    "require_vanished",
]

# A process that waits longer than this between two messages gains nothing by staying awake.
BUSY_POLL_US_MAX = 100_000
_PORT_MAX = 65_535


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is one that this machine alone reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require(condition: bool, sentence: str) -> None:
    """Raises ValueError with the sentence unless the condition holds."""
    if not condition:
        raise ValueError(sentence)


@cache
def _types_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _choices(wanted: Any) -> list[Any]:
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    return [choice for part in get_args(wanted) for choice in _choices(part)]


def require_types(settings: msgspec.Struct) -> None:
    """Refuses a value of another type: a misspelled word would else mean something in silence.

    Raises:
        ValueError: a value is none of the words its field allows, or has another type.
    """
    for name, wanted in _types_of(type(settings)).items():
        value = getattr(settings, name)
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            choices = [
                *map(repr, _choices(wanted)),
                *(["a number"] if int in get_args(wanted) else []),
            ]
            if choices and isinstance(value, str):
                raise ValueError(f"{name} must be {' or '.join(choices)}, not {value!r}") from error
            raise ValueError(f"{name} is {value!r}, which has the wrong type: {error}") from error


def require_pauses(name: str, first_ms: int, longest_ms: int) -> None:
    """Raises ValueError unless pauses can grow from the first to the longest, both in ms."""
    require(1 <= first_ms <= longest_ms, f"{name}_min must be at least 1 and not above {name}_max")


def require_secure(host: str, *, secured: bool, known: bool, insecure: bool) -> None:
    """Raises ValueError for an address that other machines reach, unless it is safe there or need not be.

    Args:
        host: where a broker listens.
        secured: whether it speaks TLS.
        known: whether its clients have to say who they are.
        insecure: whether the network is called safe.
    """
    alone = insecure or is_loopback(host)
    require(
        secured or alone,
        f"other machines reach {host}, and everyone on the way could read and change everything: set"
        " tls_certificate and tls_key (--tls-certificate, --tls-key; `headrace certificates make DIR` makes some"
        " to try it out), or insecure=true (--insecure) where the network itself is safe",
    )
    require(
        known or alone,
        f"other machines reach {host}, and each client there could read and delete everything: set login=true"
        " (--login; `headrace user add NAME --admin --data DIR` makes the first administrator), or tls_client_ca"
        " (--tls-client-ca) for clients with a certificate, or insecure=true (--insecure) where the network itself is safe",
    )


def require_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Raises ValueError for files of TLS that make no server.

    Args:
        certificate: of the server.
        key: of that certificate.
        client_ca: authorities of the clients' certificates.
    """
    require(
        (certificate is None) == (key is None),
        "tls_certificate and tls_key go together: name both files, or none",
    )
    require(
        client_ca is None or certificate is not None,
        "tls_client_ca needs tls_certificate and tls_key",
    )


def place_of(text: str) -> tuple[str, int]:
    """Returns the host and port of `HOST:PORT`. Raises ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError(f"write HOST:PORT for metrics, as in 127.0.0.1:9464, not {text!r}")
    return host, int(port)


def require_near(text: str, *, insecure: bool) -> None:
    """Raises ValueError for an address of metrics that other machines reach, unless the network is called safe."""
    host, _ = place_of(text)
    if not insecure and not is_loopback(host):
        raise ValueError(
            f"other machines reach {host}, and everyone there could read the metrics: serve them on 127.0.0.1, or set"
            " insecure=true (--insecure) where the network itself is safe"
        )


def require_vanished(vanished_ms: int) -> None:
    """Raises ValueError for less than the kernel's probes can tell, which count in whole seconds."""
    require(vanished_ms >= 4_000, "vanished_ms_max must be at least 4000")


def require_busy_poll(busy_poll_us: int) -> None:
    """Raises ValueError for a time that is too long to stay awake."""
    require(0 <= busy_poll_us <= BUSY_POLL_US_MAX, f"busy_poll_us must be 0 to {BUSY_POLL_US_MAX}")
