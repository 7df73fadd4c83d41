"""
How a connection to PostgreSQL is encrypted: the options of its URL, with psql's names.

    sslmode=disable | allow | prefer | require | verify-ca | verify-full
    sslrootcert=FILE   the authorities to trust; without it, the system's
    sslcert=FILE       the client's certificate, with sslkey=FILE

Used by `engines`; turns the options into what the driver takes, a mode or an SSL context.
"""

import ssl
from typing import Any, Final

from sqlalchemy import URL

from headrace.errors import DefinitionError

__all__ = ["TLS_OPTIONS", "tls_arguments"]

TLS_OPTIONS: Final = frozenset({"ssl", "sslmode", "sslrootcert", "sslcert", "sslkey"})

_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_CHECKING: Final = frozenset({"verify-ca", "verify-full"})


def tls_arguments(url: URL) -> dict[str, Any]:
    """Returns what the driver has to be given for the options of a URL; nothing where there are none.

    Args:
        url: of a PostgreSQL database; `ssl` is another name of `sslmode`.

    Raises:
        DefinitionError: there is no such mode, a file cannot be read, or options contradict each
            other.
    """
    given = {name: str(value) for name, value in url.query.items() if name in TLS_OPTIONS}
    mode = given.get("sslmode", given.get("ssl"))
    if not given:
        return {}
    if mode not in _MODES:
        shown = "no sslmode" if mode is None else f"sslmode={mode}"
        raise DefinitionError(
            f"the URL of the database has {shown}; write sslmode= and one of: {', '.join(_MODES)}"
        )
    root, certificate, key = (given.get(each) for each in ("sslrootcert", "sslcert", "sslkey"))
    if root is not None and mode not in _CHECKING:
        raise DefinitionError(
            f"sslrootcert without sslmode=verify-ca or verify-full checks nothing; the URL of the"
            f" database has sslmode={mode}"
        )
    if key is not None and certificate is None:
        raise DefinitionError("the URL of the database has an sslkey; give its sslcert, too")
    if mode not in _CHECKING and certificate is None:
        return {"ssl": mode}
    if mode not in {*_CHECKING, "require"}:
        raise DefinitionError(
            f"sslcert needs a connection that is always encrypted; the URL of the database has"
            f" sslmode={mode}, write sslmode=require, verify-ca or verify-full"
        )
    return {"ssl": _context(mode, root, certificate, key)}


def _context(mode: str, root: str | None, certificate: str | None, key: str | None) -> Any:
    try:
        context = ssl.create_default_context(cafile=root)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        files = ", ".join(filter(None, (root, certificate, key)))
        raise DefinitionError(
            f"the URL of the database names certificates that cannot be read ({files}): {error}"
        ) from error
    context.check_hostname = mode == "verify-full"
    if mode not in _CHECKING:
        context.verify_mode = ssl.CERT_NONE
    return context
