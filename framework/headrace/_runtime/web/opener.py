"""
Asks other programs over HTTP, as little as the framework itself does that.

Used by what fetches keys of tokens, figures of processes, and by what sends alarms; uses the standard library. Blocking.
"""

import ssl
import urllib.request
from http.client import InvalidURL
from pathlib import Path
from typing import Any

__all__ = ["failure", "opener"]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another address is one that you did not name."""

    def redirect_request(self, *_: Any) -> None:
        """Goes nowhere."""
        return


def opener(ca: Path | None = None) -> urllib.request.OpenerDirector:
    """Returns what opens an address; it follows no redirect.

    Args:
        ca: a PEM file with the authorities to believe; None: those of the system.

    Raises:
        OSError: the file cannot be read, or holds none.
    """
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Stay)


def failure(error: BaseException) -> str:
    """Returns what an error says, for logs; one about the address itself does not show it: it may hold a secret."""
    if isinstance(error, InvalidURL):
        return "the address is not valid"
    return str(error) or type(error).__name__
