"""
Looks at machines for `headrace doctor`: what is installed, certificates in files and at servers, disks, modes.

Used by the command; uses the operating system, and opens a connection to each server whose certificate it reads.
"""

import asyncio
import os
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Final

from headrace.cli.doctor.machine_rules import CertificateFacts, FileFacts, MachineFacts
from headrace_mq._net.expiry import certificates_in, validity_of

__all__ = [
    "installed",
    "look_at_certificate",
    "look_at_folder",
    "look_at_machine",
    "look_at_secret",
    "look_at_server",
]

# Java says its version within a second; a machine that swaps takes some.
_JAVA_S: Final = 20
_CONNECT_S: Final = 3
# Of a folder with more, the rest is like these.
_FILES_MAX: Final = 10_000
_OTHERS: Final = 0o077


def look_at_machine() -> MachineFacts:
    """Returns the versions of Python, Headrace, Spark and Java on this machine."""
    spark = installed("pyspark")
    return MachineFacts(
        (sys.version_info.major, sys.version_info.minor),
        installed("headrace"),
        spark,
        _java() if spark else "",
    )


def installed(package: str) -> str:
    """Returns the version of a package; empty: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def look_at_secret(what: str, file: Path) -> FileFacts | None:
    """Returns the mode of a key or a password; None: there is no such file, or it is no plain one."""
    try:
        found = file.stat()
    except OSError:
        return None
    return FileFacts(
        what, str(file), stat.S_IMODE(found.st_mode), secret=stat.S_ISREG(found.st_mode)
    )


def look_at_folder(what: str, path: Path) -> FileFacts | None:
    """Returns the mode of a folder or file, and how many below it other users can open; None: it is not there."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    count = sum(bool(entry & _OTHERS) for entry in islice(_below(path), _FILES_MAX))
    return FileFacts(what, str(path), mode, others=count)


def _below(path: Path) -> Iterator[int]:
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            try:
                found = Path(folder, name).lstat()
            except OSError:  # gone meanwhile
                continue
            if not stat.S_ISLNK(found.st_mode):
                yield stat.S_IMODE(found.st_mode)


def look_at_certificate(what: str, file: Path, *, authorities: bool = False) -> CertificateFacts:
    """Returns when the certificates of a PEM file end.

    Args:
        what: they are.
        file: with one or several.
        authorities: one of them is enough, so the last one to end counts; otherwise all are needed.
    """
    name = f"{what} {file}"
    try:
        found = [validity_of(each) for each in certificates_in(file.read_bytes())]
    except OSError as error:
        return CertificateFacts(name, None, None, f"it cannot be read: {error.strerror or error}")
    except ValueError as error:
        return CertificateFacts(name, None, None, str(error))
    if not found:
        return CertificateFacts(name, None, None, "there is no certificate in it")
    one = (max if authorities else min)(found, key=lambda each: each.ends)
    return CertificateFacts(name, one.begins, one.ends)


async def look_at_server(host: str, port: int) -> CertificateFacts | None:
    """Returns when the certificate of a TLS server ends, also of one that clients do not believe.

    None: no TLS server answers; what looks at addresses says so.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only its dates are read, and nothing is sent.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        try:
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.transport.abort()
        found = validity_of(certificate or b"")
    except (OSError, TimeoutError, ValueError):
        return None
    return CertificateFacts(f"certificate of {host}:{port}", found.begins, found.ends)
