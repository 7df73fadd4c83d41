"""
What TLS needs from files: certificates, keys, and the authorities that a side believes.

Both sides speak TLS 1.3 alone. Used by the server, which takes new files while it runs, and by clients,
which read theirs for each connection; uses the standard library's `ssl`. It knows no sockets.
"""

import os
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace_mq._net.address import ClientFiles
from headrace_mq._net.expiry import expiry_of
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import MessageQueueError, TlsFailed

__all__ = ["ServerCertificates", "ServerFiles", "broken_sentence", "client_context", "subject_of"]

_log = get_logger(__name__)

# X509_V_ERR_…: what a person can do something about.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
# What OpenSSL calls bytes that are no TLS.
_NO_TLS = frozenset({
    "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE", "RECORD_TOO_SMALL", "BAD_RECORD_TYPE", "ENCRYPTED_LENGTH_TOO_LONG",
})  # fmt: skip
_ALERTS = {
    "CERTIFICATE_REQUIRED": "asks for a client's certificate; name yours with certificate=FILE&key=FILE"
    " (HEADRACE_TLS_CERTIFICATE, HEADRACE_TLS_KEY)",
    "UNKNOWN_CA": "does not know the authority that signed this client's certificate; use one that"
    " an authority in its tls_client_ca signed",
    "CERTIFICATE_EXPIRED": "refuses this client's certificate, because it has expired; renew it",
    "BAD_CERTIFICATE": "refuses this client's certificate; use one that an authority in its"
    " tls_client_ca signed for clients",
    "PROTOCOL_VERSION": "does not speak TLS 1.3",
}
# RFC 4514, section 3.
_SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "localityName": "L", "stateOrProvinceName": "ST",
}  # fmt: skip


class ServerFiles(NamedTuple):
    """The files of a server.

    Attributes:
        certificate: its own, and those that lead to its authority.
        key: the private key of that.
        client_ca: of the authorities of which a client must show a certificate; None: it need not.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerCertificates:
    """A server's certificates: of the files as they were when they could last be used.

    Raises:
        MessageQueueError: a file cannot be used; the sentence says which and why.

    Attributes:
        context: for the next connection. Those that stand keep what they began with.
        expires_s: when the certificate of that expires, in seconds since 1970; None where it does not tell.
    """

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        self._seen = _state_of(files)
        try:
            self.context = _server_context(files)
        except TlsFailed as error:
            raise MessageQueueError(str(error)) from error
        self.expires_s = expiry_of(files.certificate.read_bytes())

    def look(self, *, always: bool = False) -> None:
        """Reads the files again if they have changed; while they cannot be used, the last ones stay.

        Args:
            always: also where nothing seems to have changed.
        """
        state = _state_of(self._files)
        if state == self._seen and not always:
            return
        self._seen = state
        try:
            self.context = _server_context(self._files)
        except TlsFailed as error:
            _log.error("the new certificate cannot be used; the last one stays", reason=str(error))
        else:
            with suppress(OSError):
                self.expires_s = expiry_of(self._files.certificate.read_bytes())
            _log.info("certificate loaded again", file=str(self._files.certificate))


def client_context(files: ClientFiles) -> ssl.SSLContext:
    """Returns what a client connects with: it believes known authorities alone, and checks names.

    Raises:
        TlsFailed: a file cannot be used; the sentence says which and why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if files.ca is None:
        context.load_default_certs()
    else:
        _believe(context, files.ca)
    if files.certificate is not None and files.key is not None:
        _load_own(context, files.certificate, files.key)
    return context


def _server_context(files: ServerFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Clients do not resume: a connection lasts for days, and each ticket would be made and sent for nothing.
    context.num_tickets = 0
    _load_own(context, files.certificate, files.key)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _believe(context, files.client_ca)
    return context


def _believe(context: ssl.SSLContext, file: Path) -> None:
    try:
        context.load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        raise TlsFailed(
            f"{file} cannot be used: {_why(error)}; name a PEM file with certificates of authorities"
        ) from error


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _require_private(key)
    try:
        # Where the key is encrypted, OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise TlsFailed(
            f"{certificate} and {key} cannot be used: {_why(error)}; name two PEM files, of a certificate"
            " and of its key without a password"
        ) from error


def _require_private(key: Path) -> None:
    """Refuses a key that other users can read; one of root may be shared with a group, as packages do."""
    try:
        found = key.stat()
    except OSError as error:
        raise TlsFailed(f"{key} cannot be used: {_why(error)}; name the key's file") from error
    others = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if found.st_uid == 0 else stat.S_IRWXG)
    if os.name == "posix" and found.st_mode & others:
        raise TlsFailed(
            f"other users can read the key {key}; run chmod 600 {key}, and make a new key"
        )


def _state_of(files: ServerFiles) -> tuple[object, ...]:
    found: list[object] = []
    for file in files:
        try:
            state = None if file is None else file.stat()
        except OSError as error:
            found.append(error.errno)
        else:
            found.append(state and (state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode))
    return tuple(found)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "there is nothing in it"
        return {"NO_START_LINE": "it is no PEM file", "KEY_VALUES_MISMATCH": "they do not belong together"
                }.get(reason, reason.lower().replace("_", " "))  # fmt: skip
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def broken_sentence(error: ssl.SSLError, host: str) -> str:
    """Says why a client has no TLS connection to a host, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unbelieved(error, host)
    reason = error.reason or ""
    if reason in _NO_TLS:
        return f"what listens at {host} does not speak TLS; leave tls:// out, or give the broker a certificate"
    for alert, meaning in _ALERTS.items():
        if reason.endswith(f"ALERT_{alert}"):
            return f"the broker at {host} {meaning}"
    return f"the TLS connection to {host} failed: {reason.lower().replace('_', ' ') or error}"


def _unbelieved(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code == _EXPIRED:
        return f"the certificate of the broker at {host} has expired; renew it"
    if error.verify_code == _NOT_YET:
        return f"the certificate of the broker at {host} is not valid yet; check the clocks of both machines"
    if error.verify_code in _OTHER_NAME:
        return (
            f"the certificate of the broker is not for {host}; connect to a name that stands in it, or make"
            " one with this name"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"the authority that signed the certificate of the broker at {host} is not known here; name its"
            " certificate with ca=FILE (HEADRACE_TLS_CA)"
        )
    return f"the certificate of the broker at {host} is not believed: {error.verify_message}"


def subject_of(certificate: object) -> str:
    """Returns the subject as text, `CN=reports,O=Bank`; empty where there is no certificate.

    Args:
        certificate: what `ssl` tells of the other side's.
    """
    if not isinstance(certificate, dict):
        return ""
    names = [pair for part in certificate.get("subject", ()) for pair in part]
    # The most special name first, as RFC 4514 has it.
    return ",".join(
        f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in reversed(names)
    )


def _escaped(value: str) -> str:
    return "".join(f"\\{each}" if each in '\\,+"<>;=' else each for each in value)
