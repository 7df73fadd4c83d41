"""
The settings of processes of an application next to each other, as each tells them at its address of metrics.

    http://a:9464/metrics  ─▶  GET http://a:9464/settings  ─▶  result_timeout_ms   5000 at a:9464 from shop.toml, 30000 at b:9464   differs

Used by `headrace config services` and by the console. Blocking parts run in threads of their own, one of each address at most,
which hold up nothing else and not the end of the process.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec

from headrace._runtime.web.opener import failure, opener
from headrace.alarms.calls import BoundedCalls
from headrace.figures.settings import SettingsOfBrokers, compared

__all__ = ["ProcessAddress", "plain_services", "services_shown"]

# A process that runs answers within milliseconds; so long a person waits for one that does not.
_WITHIN_S: Final = 5.0
# Processes that are asked at the same time: a thread for each, which only waits.
ASKED_AT_ONCE_MAX: Final = 64
# Of one answer: a hundred settings take 20 kB.
ANSWER_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES: Final = 65_536
# Each process of an application has its own of these, or may have.
_OWN: Final = frozenset({
    "name", "metrics", "command_topics", "http.host", "http.port", "http.tls_certificate", "http.tls_key",
})  # fmt: skip


class ProcessAddress(NamedTuple):
    """Where a process tells its metrics: `http://HOST:PORT/metrics`, and a PEM file with the authorities to believe."""

    url: str
    ca: Path | None = None

    @property
    def name(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    @property
    def settings_url(self) -> str:
        """Where it tells its settings: next to its metrics."""
        parts = urlsplit(self.url)
        return parts._replace(path=f"{parts.path.rpartition('/')[0]}/settings").geturl()


class _ToldSetting(msgspec.Struct, frozen=True):
    name: str
    value: str
    default: str
    source: str


_decode: Final = msgspec.json.Decoder(list[_ToldSetting]).decode


async def services_shown(
    services: Sequence[ProcessAddress], calls: BoundedCalls | None = None
) -> SettingsOfBrokers:
    """Returns the settings of processes of an application, asked at the same time; those that do not answer say why.

    Args:
        services: where they are.
        calls: shared by those who ask often, so that a process which hangs is not asked again; None: some of its own.
    """
    calls, places = calls or BoundedCalls(), asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(one: ProcessAddress) -> list[_ToldSetting] | str:
        async with places:
            try:
                # A server may send a piece now and then without end, which no limit of the socket bounds.
                return await calls.share(one.url, partial(_ask, one), bound_s=_WITHIN_S)
            except TimeoutError:
                return "timed out"

    services = list({one.url: one for one in services}.values())
    answers = await asyncio.gather(*(ask(one) for one in services))
    named = Counter(one.name for one in services)
    names = [one.name if named[one.name] == 1 else one.url for one in services]
    found = dict(zip(names, answers, strict=True))
    silent = {name: one for name, one in found.items() if isinstance(one, str)}
    told: Mapping[str, Any] = {name: one for name, one in found.items() if not isinstance(one, str)}
    return SettingsOfBrokers(list(told), silent, compared(told, _OWN))


def plain_services(found: SettingsOfBrokers) -> dict[str, Any]:
    """Returns settings of processes as JSON values."""
    return {
        "services": list(found.brokers),
        "silent": dict(found.silent),
        "settings": [
            {
                "name": one.name, "unit": one.unit, "default": one.default, "given": one.given, "differs": one.differs,
                "services": [{"service": at, "value": value, "source": source} for at, value, source in one.brokers],
            }
            for one in found.settings
        ],
    }  # fmt: skip


def _ask(service: ProcessAddress) -> list[_ToldSetting] | str:
    """The settings of one process, or why it does not tell them."""
    end = time.monotonic() + _WITHIN_S
    body = bytearray()
    try:
        with opener(service.ca).open(service.settings_url, timeout=_WITHIN_S) as answer:
            while piece := answer.read1(_PIECE_BYTES):
                body += piece
                if len(body) > ANSWER_BYTES_MAX or time.monotonic() > end:
                    return "its answer is too large, or takes too long: is it a process of an application?"
        return _decode(body)
    except HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return "it does not tell its settings: update it, and name the address of `headrace run --metrics`"
        return failure(error)
    except msgspec.MsgspecError:
        return (
            "what it answers is no list of settings: name the address of `headrace run --metrics`"
        )
    except (OSError, HTTPException, ValueError) as error:
        return failure(error)
