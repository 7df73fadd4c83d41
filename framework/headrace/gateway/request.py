"""
Reads a request's body, query and headers; each is checked and has a limit.

Used by the endpoints, each for its own purpose; reads Starlette's requests.
"""

import asyncio
import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request

from headrace.domain.identity import check_id
from headrace.gateway.problems import Problem, invalid

__all__ = [
    "Preference",
    "check_framing",
    "check_host",
    "command_key",
    "integer",
    "is_known",
    "json_object",
    "preference",
    "single_values",
    "unstorable",
]

_JSON: Final = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json", re.IGNORECASE)
_WAIT: Final = re.compile(r'wait\s*=\s*"?([0-9]{1,9})"?', re.IGNORECASE)
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
# ASCII without control characters, which every client encodes the same way.
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")

# Of a client's text in an answer.
_SHOWN_MAX: Final = 80

# What the widest column of every database takes.
_STORED_INTEGER_MAX: Final = 2**63 - 1


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """What a request's `Prefer` header asks for (RFC 7240).

    Attributes:
        wait_ms: how long it would wait; None: it does not say.
        respond_async: whether being handed over is enough.
    """

    wait_ms: int | None = None
    respond_async: bool = False


def check_framing(headers: Headers) -> None:
    """Refuses a request that says in two ways where its body ends.

    Raises:
        Problem: 400. Of two servers in a row one may believe the one way and one the other, and take
            what is left for another client's request.
    """
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Problem(
            400,
            "two-lengths",
            "Bad request",
            "send Content-Length or Transfer-Encoding, not both",
            headers={"Connection": "close"},
        )


def check_host(headers: Headers, hosts: Collection[str]) -> None:
    """Refuses a request for a name that is not the gateway's.

    A plain IP address is always taken, and no `Host` at all: no web page can make a browser send either
    of them to an address that its own name was given later.

    Args:
        headers: of the request.
        hosts: names in lower case; `*.example.com` is all below it, `*` any.

    Raises:
        Problem: 421.
    """
    said = headers.getlist("host")
    if not said or "*" in hosts:
        return
    host = _host_of(said[0]) if len(said) == 1 else ""
    if host in hosts or _is_address(host):
        return
    if any(each.startswith("*.") and host.endswith(each[1:]) for each in hosts):
        return
    raise Problem(
        421,
        "misdirected",
        "Misdirected request",
        f"this gateway is not addressed as {said[0][:_SHOWN_MAX]!r}; if it should be, name the host in"
        " the setting `hosts` (--http-hosts)",
    )


def _host_of(text: str) -> str:
    try:
        return (urlsplit(f"//{text}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def json_object(request: Request, *, bytes_max: int, within_ms: int) -> dict[str, Any]:
    """Reads a body that is one JSON object.

    Raises:
        Problem: 415 for another media type, 413 for too many bytes, 408 for a body that does not
            arrive in time, 400 for what is no JSON object, with the position.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if not _JSON.fullmatch(media_type):
        # Also keeps pages of other origins away: a browser asks before it sends this media type.
        raise Problem(
            415,
            "not-json",
            "Unsupported media type",
            f"send the body as Content-Type: application/json, not {media_type[:_SHOWN_MAX]!r}",
            headers={"Accept": "application/json"},
        )
    try:
        async with asyncio.timeout(within_ms / 1_000):
            body = await _read(request, bytes_max)
    except TimeoutError as error:
        raise Problem(
            408,
            "slow-body",
            "Request timeout",
            f"the body did not arrive within {within_ms} ms",
            headers={"Connection": "close"},
        ) from error
    except ClientDisconnect as error:
        raise _malformed("the connection ended within the body") from error
    return _decode(body)


def preference(headers: Headers) -> Preference:
    """Reads `Prefer`; unknown preferences are ignored, as its RFC demands."""
    wait_ms, respond_async = None, False
    for token in ",".join(headers.getlist("prefer")).split(","):
        word = token.strip()
        found = _WAIT.fullmatch(word)
        if found:
            wait_ms = int(found[1]) * 1_000
        elif word.lower() == "respond-async":
            respond_async = True
    return Preference(wait_ms=wait_ms, respond_async=respond_async)


def command_key(headers: Headers) -> str | None:
    """Reads `Idempotency-Key`, with or without the quotes of a structured field.

    Raises:
        Problem: 400 for an empty, long or strange key, and for two of them.
    """
    keys = headers.getlist("idempotency-key")
    if not keys:
        return None
    key = keys[0]
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(keys) > 1:
        raise _unusable_key("send one of them")
    if not _PRINTABLE.fullmatch(key):
        raise _unusable_key("use 1 to 255 printable ASCII characters")
    try:
        return check_id("an Idempotency-Key", key)
    except ValueError as error:
        raise _unusable_key(str(error)) from error


def is_known(headers: Headers, tag: str) -> bool:
    """Returns whether `If-None-Match` names an answer's tag; weak tags count, as its RFC says."""
    named = ",".join(headers.getlist("if-none-match")).split(",")
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in named)


def _unusable_key(sentence: str) -> Problem:
    return Problem(
        400, "idempotency-key", "Unusable Idempotency-Key", f"Idempotency-Key: {sentence}"
    )


def single_values(query: QueryParams) -> dict[str, str]:
    """Returns the query by name; raises a 422 `Problem` for a repeated name."""
    values: dict[str, str] = {}
    for name, value in query.multi_items():
        if name in values:
            raise invalid(
                f"the query has {name[:80]!r} twice",
                [{"field": name[:80], "sentence": "send it once"}],
            )
        values[name] = value
    return values


def integer(
    values: Mapping[str, str], name: str, *, least: int, most: int, default: int | None
) -> int | None:
    """Reads an integer of a query; raises a 422 `Problem` if it is no integer, or out of bounds."""
    text = values.get(name)
    if text is None:
        return default
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not least <= number <= most:
        sentence = f"{name} is an integer from {least} to {most}"
        raise invalid(sentence, [{"field": name, "sentence": sentence}])
    return number


def unstorable(fields: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yields what no table can hold, with its field: whole numbers of more than 64 bits, and NUL.

    An event made of it would be stored, and then stop every projection that shows it.
    """
    waiting: list[tuple[str, Any]] = [("", fields)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{name}".strip(".")[:200], one) for name, one in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}.{number}"[:200], one) for number, one in enumerate(value)]
        elif isinstance(value, int) and abs(value) > _STORED_INTEGER_MAX:
            yield {"field": path, "sentence": "a whole number has at most 64 bits"}
        elif isinstance(value, str) and "\x00" in value:
            yield {"field": path, "sentence": "text has no NUL"}


async def _read(request: Request, bytes_max: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if _INTEGER.fullmatch(declared) and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
    return b"".join(parts)


def _too_large(bytes_max: int) -> Problem:
    return Problem(
        413,
        "too-large",
        "Body too large",
        f"a body has at most {bytes_max} bytes (body_bytes_max), because the requests at work are"
        " held in memory and a command travels in one message",
        # What is still on its way is not read.
        headers={"Connection": "close"},
        body_bytes_max=bytes_max,
    )


def _decode(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not UTF-8 (byte {_first_foreign(body)})") from error
    except RecursionError as error:
        raise _malformed("the body is nested too deeply") from error
    except msgspec.DecodeError as error:
        sentence = str(error)
        if "byte" not in sentence:
            sentence += f" (byte {len(body)})"
        raise _malformed(f"the body is no JSON: {sentence}") from error
    if not isinstance(value, dict):
        raise _malformed("the body is a JSON object with the command's fields (byte 0)")
    return value


def _first_foreign(body: bytes) -> int:
    """Where a body stops being UTF-8; the decoder counts from the start of a string."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(body)


def _malformed(sentence: str) -> Problem:
    return Problem(400, "malformed", "Malformed body", sentence)
