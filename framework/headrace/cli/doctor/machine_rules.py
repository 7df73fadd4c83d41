"""
What `headrace doctor` says of machines: versions, room on disks, certificates, modes of files.

Used by the command, with what `machine_look` and `broker_look` found. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from headrace.cli.doctor.findings import Finding, failed, ok, warning

__all__ = [
    "CERTIFICATE_DAYS",
    "DISK_DAYS",
    "CertificateFacts",
    "DiskFacts",
    "FileFacts",
    "MachineFacts",
    "certificates",
    "disk",
    "java_major",
    "modes",
    "versions",
]

# A certificate is renewed weeks before it ends: time for a person who is on holiday.
CERTIFICATE_DAYS: Final = 21
# Two weeks to buy a disk, or to delete what is not needed.
DISK_DAYS: Final = 14
# Below this share free, a disk that grows at an unknown rate is nearly full.
_FREE_PERCENT_MIN: Final = 10
_PYTHON: Final = (3, 11)
_JAVA: Final = 17
_OTHERS: Final = 0o077
_GIB: Final = 1 << 30
_PERCENT: Final = 100
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_DAY_S: Final = 86_400


class MachineFacts(NamedTuple):
    """What is installed on this machine.

    Attributes:
        python: its version.
        headrace: the version of the package; empty: it runs from its sources.
        pyspark: the version of Spark's package; empty: it is not installed.
        java: what `java -version` says; empty: no Java could be started.
    """

    python: tuple[int, int]
    headrace: str
    pyspark: str
    java: str


class FileFacts(NamedTuple):
    """A file or folder that is for one user.

    Attributes:
        what: it is, in words.
        path: where.
        mode: its permissions.
        secret: whether it is a key or a password, which is refused if others can read it.
        others: how many more below it are open to others.
    """

    what: str
    path: str
    mode: int
    secret: bool = False
    others: int = 0


class CertificateFacts(NamedTuple):
    """A certificate: when it begins and ends to be valid, or why that is not known."""

    what: str
    begins: datetime | None
    ends: datetime | None
    trouble: str = ""


class DiskFacts(NamedTuple):
    """The disk of a folder.

    Attributes:
        what: has its files there.
        disk_bytes: what may be used in all; -1: it is not known.
        free_bytes: what is free of it.
        grows: by so many bytes a day; None: it is not known.
        full_percent: the share at which it counts as full.
    """

    what: str
    disk_bytes: int
    free_bytes: int
    grows: float | None = None
    full_percent: int = _PERCENT


def java_major(text: str) -> int | None:
    """Returns the first number of Java's version, as `java -version` says it; None: it says none."""
    found = _JAVA_VERSION.search(text)
    return int(found[1]) if found else None


def versions(machine: MachineFacts, broker: str | None) -> Iterator[Finding]:
    """Says of Python, Java and the broker whether their versions fit.

    Args:
        machine: what is installed here.
        broker: what the broker calls itself; empty: it does not tell. None: it was not asked.
    """
    python = ".".join(map(str, machine.python))
    if machine.python < _PYTHON:
        yield failed("Python", f"version {python}", "install Python 3.11 or newer")
    else:
        yield ok("Python", f"version {python}")
    yield _java(machine)
    own = machine.headrace or "unknown"
    if broker is None:
        yield ok("headrace", f"version {own} here")
        return
    theirs = broker.rpartition(" ")[2] if " " in broker else ""
    if not broker:
        yield warning(
            "headrace", f"version {own} here, and the broker's is too old to tell",
            "update the broker, then its clients",
        )  # fmt: skip
    elif machine.headrace and theirs and theirs != machine.headrace:
        yield warning(
            "headrace", f"version {own} here, and {theirs} at the broker",
            "update the older one; a broker serves clients of earlier versions",
        )  # fmt: skip
    else:
        yield ok("headrace", f"version {own} here and at the broker")


def _java(machine: MachineFacts) -> Finding:
    if not machine.pyspark:
        return ok("Java", "Spark is not installed, so none is needed")
    advice = (
        "install Java 17 or newer, and set JAVA_HOME to its folder; rebuilds with Spark need it"
    )
    major = java_major(machine.java)
    if major is None:
        return warning("Java", f"Spark {machine.pyspark} is installed, and no Java starts", advice)
    if major < _JAVA:
        return warning("Java", f"version {major}, and Spark needs {_JAVA} or newer", advice)
    return ok("Java", f"version {major}, for Spark {machine.pyspark}")


def disk(facts: DiskFacts, days_min: int = DISK_DAYS) -> Finding:
    """Says how much room a disk has, and for how many days.

    Args:
        facts: what was found.
        days_min: fewer days are a warning.
    """
    name = f"disk of {facts.what}"
    if facts.disk_bytes < 0:
        return ok(name, "its system does not tell how full it is; watch it there")
    left = facts.free_bytes - facts.disk_bytes * (_PERCENT - facts.full_percent) // _PERCENT
    full = "" if facts.full_percent == _PERCENT else f" until it is {facts.full_percent} % full"
    said = f"{max(0, left) / _GIB:,.1f} GiB left{full}"
    advice = "make room or take a larger disk; `headrace broker show` and docs/operations.md say what takes it"
    if left <= 0:
        return failed(name, f"it is full: {said}", advice)
    if facts.grows is None:
        if facts.free_bytes * _PERCENT < facts.disk_bytes * _FREE_PERCENT_MIN:
            return warning(name, f"{said}, less than a tenth of the disk", advice)
        return ok(name, said)
    if facts.grows <= 0:
        return ok(name, f"{said}, and what is kept does not grow")
    days = left / facts.grows
    said = f"{said}, enough for {days:,.0f} days at {facts.grows / _GIB:,.2f} GiB a day"
    return warning(name, said, advice) if days < days_min else ok(name, said)


def certificates(
    found: Iterable[CertificateFacts], now: datetime, days_min: int = CERTIFICATE_DAYS
) -> Iterator[Finding]:
    """Says of each certificate for how many days it is valid yet.

    Args:
        found: what was found.
        now: the time, with its zone.
        days_min: fewer days are a warning.
    """
    renew = "renew it; brokers and gateways take a new file without a restart"
    for each in found:
        if each.begins is None or each.ends is None:
            yield failed(each.what, each.trouble, "name a PEM file with a certificate")
            continue
        ends = f"{each.ends.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        days = (each.ends - now).total_seconds() / _DAY_S
        if days <= 0:
            yield failed(each.what, f"it ended on {ends}", renew)
        elif each.begins > now:
            begins = f"{each.begins.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            yield failed(each.what, f"it begins on {begins}", "set the clocks, or renew it")
        elif days < days_min:
            yield warning(each.what, f"it ends on {ends}, in {days:.0f} days", renew)
        else:
            yield ok(each.what, f"it ends on {ends}, in {days:.0f} days")


def modes(found: Iterable[FileFacts]) -> Iterator[Finding]:
    """Says of files and folders whether other users of the machine can open them."""
    for each in found:
        name = f"mode of {each.what}"
        here = each.mode & _OTHERS
        if not here and not each.others:
            yield ok(name, f"{each.path} has {each.mode:04o}, for its user alone")
            continue
        below = f", and {each.others:,} below it are open, too" if each.others else ""
        said = f"{each.path} has {each.mode:04o}{below}: other users of this machine can open it"
        if each.secret:
            yield failed(
                name, said, f"run chmod 600 {each.path}, and make a new one: it is refused so"
            )
        else:
            yield warning(name, said, f"run chmod -R go= {each.path}")
