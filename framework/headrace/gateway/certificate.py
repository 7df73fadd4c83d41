"""
The gateway's certificate: read from its files, and again when these change.

Used by `server`, which gives the context to uvicorn; uses the standard library's `ssl`.
"""

import asyncio
import os
import ssl
import stat
from pathlib import Path
from typing import Final, Protocol

from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError

__all__ = ["Certificate", "Renewable", "renewed"]

log = get_logger(__name__)

# How soon new files are found: certificates are renewed days before the old ones expire, and a token that is
# taken away is good no longer than that.
_LOOK_MS: Final = 10_000


class Certificate:
    """A certificate and its key, for TLS 1.3.

    Args:
        certificate: a PEM file, with the certificates that lead to its authority.
        key: a PEM file that no other user can read.

    Raises:
        HeadraceError: a file cannot be used; the sentence says why.

    Attributes:
        context: what connections begin with.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._seen = self._state()
        self.context = self._read()

    def look(self) -> None:
        """Takes new files if there are some; while they cannot be used, the last ones stay."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            # Tried first: a failure half-way would leave the context in use without a key.
            self._read()
            self.context.load_cert_chain(self._certificate, self._key)
        except (HeadraceError, OSError) as error:
            log.warning("the new certificate cannot be used; the last one stays", reason=str(error))
        else:
            log.info("certificate loaded again", file=str(self._certificate))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            _require_private(self._key)
            # Where the key is encrypted, OpenSSL would ask the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise HeadraceError(
                f"{self._certificate} and {self._key} cannot be used for HTTP ({why}): name two PEM files,"
                " of a certificate and of its key without a password"
            ) from error
        return context

    def _state(self) -> list[tuple[int, ...] | None]:
        found: list[tuple[int, ...] | None] = []
        for file in (self._certificate, self._key):
            try:
                state = file.stat()
            except OSError:
                found.append(None)
            else:
                found.append((state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode))
        return found


class Renewable(Protocol):
    """What is read from files, and again when they change."""

    def look(self) -> None:
        """Takes new files if there are some."""
        ...


async def renewed(*all_files: Renewable | None) -> None:
    """Takes new files when there are some, for ever; connections that stand stay as they are."""
    while True:
        await asyncio.sleep(_LOOK_MS / 1_000)
        for files in all_files:
            if files is not None:
                files.look()


def _require_private(key: Path) -> None:
    """Refuses a key that other users can read; one of root may be shared with a group, as packages do."""
    found = key.stat()
    others = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if found.st_uid == 0 else stat.S_IRWXG)
    if os.name == "posix" and found.st_mode & others:
        raise HeadraceError(
            f"other users can read the key {key}; run chmod 600 {key}, and make a new key"
        )
