"""
The client's side of a login: a password or a key from its file, and SCRAM-SHA-256 or a signature.

The file is read for each connection, so a new one counts from the next connection on. What is in it leaves this module
only as a proof. A file in PEM holds a key of Ed25519, any other one a password. Used by the link and by the blocking reader, each with its own way to wait for answers.
"""

import os
import secrets
import stat
from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_mq._net.address import ClientLogin
from headrace_mq.errors import LoginFailed
from headrace_mq.protocol.access import (
    ED25519,
    SCRAM,
    Credentials,
    Login,
    LoginAnswer,
    key_greeting,
    signed_by_key,
)
from headrace_mq.protocol.bodies import HelloAnswer

if (
    TYPE_CHECKING
):  # loaded by those that log in: importing it takes as long as the rest of the client
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from pydantic import SecretStr

__all__ = ["credentials_of", "login_steps", "public_key_of", "read_password"]

# RFC 7677 asks for at least as many; each takes half a microsecond, of the client alone.
ROUNDS = 4_096
# A broker that asks for more would keep the client at work for seconds.
ROUNDS_MAX = 1_000_000
PASSWORD_BYTES_MAX = 1_024
_PEM = "-----BEGIN "
_NONCE_BYTES = 32


def read_password(file: Path) -> "SecretStr":
    """Reads a password: the text of a file, without the end of its line.

    Raises:
        LoginFailed: it cannot be read, others can read it too, or there is no password in it.
    """
    from pydantic import SecretStr

    try:
        found = file.stat()
        others = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if found.st_uid == 0 else stat.S_IRWXG)
        if os.name == "posix" and stat.S_ISREG(found.st_mode) and found.st_mode & others:
            raise LoginFailed(
                f"other users can read the password in {file}; run chmod 600 {file}, and choose a new password"
            )
        with file.open("rb") as opened:
            text = SecretStr(
                opened.read(PASSWORD_BYTES_MAX + 2).decode().removesuffix("\n").removesuffix("\r")
            )
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise LoginFailed(
            f"the password in {file} cannot be read: {reason}; name a file with the password alone in"
            " HEADRACE_PASSWORD_FILE"
        ) from None
    if not 1 <= len(text.get_secret_value().encode()) <= PASSWORD_BYTES_MAX:
        raise LoginFailed(
            f"a password has 1 to {PASSWORD_BYTES_MAX} bytes, and that in {file} has not; write it into the file"
        )
    return text


def credentials_of(password: "SecretStr") -> Credentials:
    """Returns what a broker keeps of a password.

    Raises:
        LoginFailed: it has signs that no password can have.
    """
    from scramp import ScramException, ScramMechanism

    try:
        made = ScramMechanism(SCRAM).make_auth_info(
            password.get_secret_value(), iteration_count=ROUNDS
        )
    except (ScramException, ValueError):
        raise _unusable() from None
    return Credentials(*made)


def login_steps(
    login: ClientLogin | None, hello: HelloAnswer
) -> Generator[Login, LoginAnswer, None]:
    """Yields what a client sends to log in, and is sent the answers; nothing where no login is asked for.

    Raises:
        LoginFailed: there is no user or password, the broker knows no mechanism that this client knows, or it
            cannot prove that it is the right one.
    """
    if not hello.login:
        return
    if login is None:
        raise LoginFailed(
            "this broker asks for a login: set HEADRACE_USER and HEADRACE_PASSWORD_FILE, or add"
            " user=NAME&password_file=FILE to its address (tcp://HOST:PORT?… where it has no TLS)"
        )
    if not {SCRAM, ED25519} & set(hello.login):
        raise LoginFailed(
            f"this broker asks for {', '.join(hello.login)}, and this client knows {SCRAM} and {ED25519}"
        )
    password = read_password(login.password_file)
    by_key = password.get_secret_value().startswith(_PEM)
    mechanism = ED25519 if by_key else SCRAM
    if mechanism not in hello.login:
        raise LoginFailed(
            f"this broker asks for {', '.join(hello.login)}, and {login.password_file} is for {mechanism}"
        )
    if by_key:
        yield from _key_steps(login, _private_key(password, login.password_file))
    else:
        yield from _password_steps(login, password)


def public_key_of(file: Path) -> bytes:
    """Returns the public key in a file in PEM, or the one of the private key there.

    Raises:
        LoginFailed: there is no key of Ed25519, or a private key that others can read, too.
        ModuleNotFoundError: cryptography is not installed.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        text = file.read_bytes()[:PASSWORD_BYTES_MAX]
    except OSError as error:
        raise LoginFailed(f"the key in {file} cannot be read: {error.strerror}") from None
    if b"PUBLIC KEY" not in text:
        return _private_key(read_password(file), file).public_key().public_bytes_raw()
    try:
        key = load_pem_public_key(text)
    except ValueError:
        raise _no_key(file) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(file)
    return key.public_bytes_raw()


def _private_key(pem: "SecretStr", file: Path) -> "Ed25519PrivateKey":
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise LoginFailed("a login with a key needs pip install 'headrace[certificates]'") from None
    try:
        key = load_pem_private_key(pem.get_secret_value().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _no_key(file) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(file)
    return key


def _key_steps(login: ClientLogin, key: "Ed25519PrivateKey") -> Generator[Login, LoginAnswer, None]:
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    answer = yield Login(ED25519, key_greeting(login.user, nonce))
    signature = key.sign(signed_by_key(login.user, nonce, answer.message))
    yield Login(ED25519, b64encode(signature).decode())


def _password_steps(
    login: ClientLogin, password: "SecretStr"
) -> Generator[Login, LoginAnswer, None]:
    from scramp import ScramClient, ScramException

    try:
        client = ScramClient([SCRAM], login.user, password.get_secret_value())
        first = client.get_client_first()
    except (ScramException, ValueError):
        raise _unusable() from None
    answer = yield Login(SCRAM, first)
    try:
        client.set_server_first(answer.message)
        final = client.get_client_final() if int(client.iterations) <= ROUNDS_MAX else ""
    except (ScramException, ValueError, LookupError):
        raise _not_the_broker() from None
    if not final:
        raise _not_the_broker()
    answer = yield Login(SCRAM, final)
    try:
        client.set_server_final(answer.message)
    except (ScramException, ValueError, LookupError):
        raise _not_the_broker() from None


def _no_key(file: Path) -> LoginFailed:
    return LoginFailed(
        f"{file} is no key of Ed25519 in PEM without a password; `headrace certificates key FILE` makes one"
    )


def _unusable() -> LoginFailed:
    return LoginFailed(
        "the name or the password has signs that cannot be used; take printable ones"
    )


def _not_the_broker() -> LoginFailed:
    return LoginFailed(
        "what answers at this address could not prove that it knows this user; check the address, and use TLS"
    )
