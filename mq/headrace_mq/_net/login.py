"""
The client's side of a login: the password from its file, and SCRAM-SHA-256.

The password is read for each connection, so a new one counts from the next connection on. It leaves this module
only as a proof. Used by the link and by the blocking reader, each with its own way to wait for answers.
"""

import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_mq._net.address import ClientLogin
from headrace_mq.errors import LoginFailed
from headrace_mq.protocol.access import SCRAM, Credentials, Login, LoginAnswer
from headrace_mq.protocol.bodies import HelloAnswer

if (
    TYPE_CHECKING
):  # loaded by those that log in: importing it takes as long as the rest of the client
    from pydantic import SecretStr

__all__ = ["credentials_of", "login_steps", "read_password"]

# RFC 7677 asks for at least as many; each takes half a microsecond, of the client alone.
ROUNDS = 4_096
# A broker that asks for more would keep the client at work for seconds.
ROUNDS_MAX = 1_000_000
PASSWORD_BYTES_MAX = 1_024


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
    if SCRAM not in hello.login:
        raise LoginFailed(
            f"this broker asks for {', '.join(hello.login)}, and this client knows {SCRAM} alone"
        )
    from scramp import ScramClient, ScramException

    password = read_password(login.password_file)
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


def _unusable() -> LoginFailed:
    return LoginFailed(
        "the name or the password has signs that cannot be used; take printable ones"
    )


def _not_the_broker() -> LoginFailed:
    return LoginFailed(
        "what answers at this address could not prove that it knows this user; check the address, and use TLS"
    )
