"""
The file of tokens: read at the start, and again when it changes.

Used by `authentication`, which looks tokens up, and by the server, which says when to look; reads the file.
"""

import os
import stat
from pathlib import Path

from headrace._runtime.log import get_logger
from headrace.access.principal import Principal
from headrace.access.tokens import Tokens
from headrace.errors import HeadraceError

__all__ = ["TokenFile"]

log = get_logger(__name__)


class TokenFile:
    """Who has which token, as a file says.

    Args:
        path: of the file; only its owner may write it.

    Raises:
        HeadraceError: the file cannot be used; the sentence says why.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._state()
        self._tokens = self._read()

    def find(self, token: str) -> Principal | None:
        """Returns who has a token."""
        return self._tokens.find(token)

    def look(self) -> None:
        """Takes a new file if there is one; while it cannot be used, the last tokens stay."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._tokens = self._read()
        except HeadraceError as error:
            log.warning(
                "the new file of tokens cannot be used; the last tokens stay", reason=str(error)
            )
        else:
            log.info("tokens loaded again", file=str(self._path), tokens=len(self._tokens))

    def _read(self) -> Tokens:
        try:
            mode = self._path.stat().st_mode
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise HeadraceError(
                f"the tokens in {self._path} cannot be read ({why}): name the file that `headrace token make"
                " NAME --tokens FILE` writes"
            ) from error
        if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise HeadraceError(
                f"other users can write {self._path}, and so let themselves in; run chmod go-w {self._path}"
            )
        try:
            return Tokens.parse(text)
        except ValueError as error:
            raise HeadraceError(f"the tokens in {self._path} cannot be used: {error}") from error

    def _state(self) -> tuple[int, ...] | None:
        try:
            state = self._path.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode
