"""
The bundle of `headrace doctor --bundle FILE`: what those who help you need to know of a deployment, without secrets.

    report │ versions │ settings │ broker │ group of brokers │ alarms  ─▶  Secrets  ─▶  FILE, a new .tar.gz

Each text passes the one filter, `Secrets`. What could not be asked is a sentence in its place. Nothing of messages is in
it, neither bodies nor keys, and no file with a password or a key is read for it. Used by the command.
"""

import asyncio
import io
import os
import platform
import re
import sqlite3
import ssl
import sys
import tarfile
import time
import tomllib
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import requires
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import typer

from headrace._runtime.private_files import FILE_MODE, open_new
from headrace.alarms.folder import AlarmFolder
from headrace.alarms.overview import overview
from headrace.cli.alarms.alarms_file import read_alarms_file
from headrace.cli.doctor import broker_look
from headrace.cli.doctor.examination import PART_S, ExaminedGroup, said_of
from headrace.cli.doctor.findings import shown
from headrace.cli.doctor.given import effective
from headrace.cli.doctor.machine_look import installed
from headrace.errors import HeadraceError
from headrace.figures.cluster import RecordPlace, group_shown, look
from headrace.figures.words import named
from headrace.transports.kafka.address import is_kafka
from headrace_mq._net.address import BrokerAddress

__all__ = ["Deployment", "Secrets", "collect", "require_new", "write_bundle"]

# The folder in the bundle.
_FOLDER: Final = "headrace-doctor"
_REMOVED: Final = "***"
# A shorter one is removed where it stands as a secret alone: everywhere, it would remove parts of other words.
_LETTERS_MIN: Final = 6
_PACKAGE: Final = re.compile(r"[\w.-]+")
# Names of variables and of options whose values are secrets.
_CALLED: Final = (
    r"(?:password|passwd|passphrase|secret|token|credentials?|api_?key|access_?key|private_?key)"
)
_SECRET_VARIABLE: Final = re.compile(_CALLED, re.IGNORECASE)
# A password in an address; the second may have blanks in it.
_PASSWORD: Final = re.compile(r"://[^\s/:@]*:([^\n]*)@")
_OPTION: Final = re.compile(rf"[\w.-]*{_CALLED}=([^&\s\"']+)", re.IGNORECASE)
# What is removed from each text, also where the secret is not known from elsewhere.
_FORMS: Final = (
    (re.compile(r"(https?://)[^\s/@]+@"), rf"\1{_REMOVED}@"),
    (re.compile(r"(://[^\s/:@]*):\S*@"), rf"\1:{_REMOVED}@"),
    (re.compile(r"(?<![\w/:.])([\w.+-]+):(?!//)\S+@(?=[\w\[])"), rf"\1:{_REMOVED}@"),
    (re.compile(r"(https?://[^\s?]+)\?\S+"), rf"\1?{_REMOVED}"),
    (re.compile(rf"([\w.-]*{_CALLED}=)[^&\s]+", re.IGNORECASE), rf"\1{_REMOVED}"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {_REMOVED}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), _REMOVED),
)  # fmt: skip


class Deployment(NamedTuple):
    """What is asked for a bundle.

    Attributes:
        broker: its address.
        group: of brokers; None: none was named.
        alarms: the file with the settings of alarms; None: none was named.
        config: the file with settings, or None.
        pairs: of `--set`.
        chosen: settings that are options of the command, by the command and name that they have in `config show`.
    """

    broker: str
    group: ExaminedGroup | None
    alarms: Path | None
    config: Path | None
    pairs: tuple[str, ...]
    chosen: Mapping[tuple[str, str], str]


class Secrets:
    """The filter of a bundle: removes secrets from values and texts.

    It removes what has the form of a secret, and wherever they stand those secrets that it knows: passwords in addresses,
    values of variables that are called so, and addresses of webhooks, which often are secrets as a whole.

    Args:
        environment: of the process.
        texts: that have addresses with passwords: options, files of settings.
        webhooks: their addresses.
    """

    def __init__(
        self, environment: Mapping[str, str], texts: Iterable[str] = (), webhooks: Iterable[str] = ()
    ) -> None:  # fmt: skip
        words = set(_of_variables(environment))
        for text in (*environment.values(), *texts):
            words.update(_of_addresses(text))
        for url in webhooks:
            words |= {url, url.partition("?")[0]}
        words |= {unquote(word) for word in words}
        self._words = sorted((one for one in words if len(one) >= _LETTERS_MIN), key=len)[::-1]
        # It has the name of a person in it.
        home = environment.get("HOME", "").rstrip("/")
        self._home = re.compile(rf"(?<![\w.-]){re.escape(home)}/") if home else None

    @classmethod
    def of(cls, deployment: Deployment, environment: Mapping[str, str]) -> "Secrets":
        """Returns the filter that knows the secrets of a deployment."""
        texts = [deployment.broker, *deployment.pairs, *deployment.chosen.values()]
        if deployment.group is not None:
            texts.append(deployment.group.record)
        config, alarms = (_text_of(file) for file in (deployment.config, deployment.alarms))
        texts += [*config.splitlines(), *alarms.splitlines()]
        return cls(environment, texts, _webhooks(alarms))

    def without(self, value: Any) -> Any:
        """Returns a value of mappings, lists and texts with its secrets removed; other objects as their text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.without(str(name)): self.without(held) for name, held in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.without(held) for held in value]
        text = str(value)  # of a SecretStr, that is asterisks
        for word in self._words:
            text = text.replace(word, _REMOVED)
        for form, instead in _FORMS:
            text = form.sub(instead, text)
        return text if self._home is None else self._home.sub("~/", text)


def _text_of(file: Path | None) -> str:
    with suppress(OSError):  # one that cannot be read gives no settings either
        return "" if file is None else file.read_text(encoding="utf-8", errors="replace")
    return ""


def _webhooks(alarms: str) -> list[str]:
    """Returns the addresses of the receivers in a file of alarms; none of one that is no TOML."""
    with suppress(tomllib.TOMLDecodeError, AttributeError, TypeError):
        return [str(one["url"]) for one in tomllib.loads(alarms).get("webhook", ()) if "url" in one]
    return []


def _of_variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        # Settings have two underscores, and are no secrets themselves; of files there is the path alone.
        is_setting = name.startswith("HEADRACE_") and "__" in name
        is_path = name.endswith("_FILE") or os.path.exists(value)  # noqa: PTH110 - Path raises for a long text
        if _SECRET_VARIABLE.search(name) and not is_setting and not is_path:
            yield value


def _of_addresses(text: str) -> Iterator[str]:
    for found in _PASSWORD.finditer(text):
        rest = text[: found.start(1)] + text[found.end(1) :]
        # A password that is the user's name, too, is a word of everyday: it is removed where it stands.
        if found[1] not in rest:
            yield found[1]
    yield from (found[1] for found in _OPTION.finditer(text))


def require_new(file: Path) -> None:
    """Refuses a file that exists, or whose folder does not.

    Raises:
        typer.BadParameter: so it is.
    """
    if file.exists() or file.is_symlink():
        raise typer.BadParameter(f"{file} exists; name a new file", param_hint="--bundle")
    if not file.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {file.parent}; make it, or name another file",
            param_hint="--bundle",
        )


async def collect(deployment: Deployment, environment: Mapping[str, str]) -> dict[str, Any]:
    """Asks for all members of a bundle next to the report, and returns them by name; changes nothing.

    Args:
        deployment: what is asked.
        environment: of the process.
    """
    group, alarms = deployment.group, deployment.alarms
    asked = {
        "versions.json": asyncio.to_thread(_versions),
        "settings.json": asyncio.to_thread(_settings, deployment, environment),
        "broker.json": _broker(deployment.broker),
        "cluster.json": _not_named("--record") if group is None else _cluster(group),
        "alarms.json": _not_named("--alarms") if alarms is None else asyncio.to_thread(_alarms, alarms),
    }  # fmt: skip
    answers = await asyncio.gather(*(_answer(one) for one in asked.values()))
    return dict(zip(asked, answers, strict=True))


async def _answer(asked: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(PART_S):
            return named(await asked)
    except typer.BadParameter as error:
        return {"not_asked": error.message}
    except Exception as error:  # noqa: BLE001 - any error means that this part cannot be had
        return {"not_asked": said_of(error)}


async def _not_named(option: str) -> Any:
    return {"not_asked": f"{option} was not given"}


def _versions() -> dict[str, Any]:
    packages = {found[0] for one in requires("headrace") or () if (found := _PACKAGE.match(one))}
    return {
        "headrace": installed("headrace"),
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "openssl": ssl.OPENSSL_VERSION,
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: installed(name) or None for name in sorted(packages)},
    }


def _settings(deployment: Deployment, environment: Mapping[str, str]) -> list[Any]:
    chosen = deployment.chosen
    return [
        one._replace(value=shown(chosen[one.command, one.name]), source="option of the doctor")
        if (one.command, one.name) in chosen
        else one
        for one in effective(
            file=deployment.config, environment=environment, pairs=deployment.pairs
        )
    ]


async def _broker(address: str) -> dict[str, Any]:
    if is_kafka(address):
        raise HeadraceError("a Kafka cluster has tools of its own for its topics and groups")
    facts = await broker_look.look_at_broker(BrokerAddress.parse(address))
    return {
        "status": facts.status,
        "clock_ahead_ms": facts.ahead_ms,
        "topics": facts.topics,
        "groups": facts.groups,
        "oldest_ms": facts.oldest_ms,
        "dead_letters": facts.letters,
        "not_permitted": facts.denied,
    }


async def _cluster(group: ExaminedGroup) -> dict[str, Any]:
    return group_shown(*await look(RecordPlace(*group)))


def _alarms(file: Path) -> dict[str, Any]:
    found = overview(AlarmFolder(read_alarms_file(file).folder), time.time())
    # Silences have names of persons; sentences of receivers have their addresses.
    return {name: found[name] for name in ("trouble", "looked_ms", "firing", "waiting")}


def write_bundle(file: Path, members: Mapping[str, Any], secrets: Secrets) -> None:
    """Writes a new file that only this user can read.

    Args:
        file: to make.
        members: by name; a text as it is, any other value as JSON.
        secrets: removes them.

    Raises:
        HeadraceError: it cannot be written, or exists.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, value in members.items():
            clean = secrets.without(value)
            text = clean if isinstance(clean, str) else _json(clean)
            content = text.encode("utf-8", "replace")
            member = tarfile.TarInfo(f"{_FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), FILE_MODE, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    try:
        with open_new(file, "xb") as target:
            try:
                target.write(packed.getbuffer())
                target.flush()
            except OSError:
                file.unlink()
                raise
    except OSError as error:
        raise HeadraceError(f"the bundle cannot be written: {error}; name another file") from error


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
