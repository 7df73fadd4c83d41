"""
Users of a broker that does not run: how the first administrator comes to be.

Those that may write the broker's folder may do everything with it, so this asks for no login. Used by the command
line; uses the files of the broker, under the lock of a running one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_mq._net.login import credentials_of
from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq.broker.files.epoch import KeptBroker, is_used
from headrace_mq.broker.metadata import broker_file, users_file
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.access import SetUser, UserEntry
from headrace_mq.store.message_store import LOCK_NAME

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["add_user"]


def add_user(
    directory: Path,
    name: str,
    password: "SecretStr | None",
    *,
    roles: Sequence[str] = (),
    admin: bool = False,
    key: bytes = b"",
    files: Files | None = None,
) -> UserEntry:
    """Adds a user to the folder of a broker, which is made if it is missing; durable.

    Args:
        directory: as in `headrace broker --data`.
        name: as it logs in, or the subject of its certificate.
        password: None for a user with a certificate or a key.
        roles: whose rules hold for it, too.
        admin: whether it may do everything.
        key: its public key of Ed25519, if it has one.
        files: the file system.

    Raises:
        InvalidArgument: there is a user of that name, or a value is out of its range.
        DataCorrupt, FormatTooNew: the file of users cannot be used.
        MessageQueueError: a broker runs there.
        OSError: the folder cannot be written.
    """
    files = files or SystemFiles()
    book, made = UserBook(users_file(directory, files)), broker_file(directory, files)
    new = not is_used(files, directory)
    for path in reversed([directory, *directory.parents]):
        if not files.exists(path):
            files.make_directory(path)
            files.sync_directory(path.parent)
    lock = files.open(directory / LOCK_NAME, create=True)
    try:
        if not files.lock(lock):
            raise MessageQueueError(
                f"a broker uses {directory}; log in there and leave --data out, or stop it first"
            )
        book.load()
        credentials = [] if password is None else [credentials_of(password)]
        entry = book.change(
            SetUser(
                "add",
                name,
                credentials,
                set_roles=True,
                roles=list(roles),
                admin=int(admin),
                keys=[key] if key else [],
            )
        )
        if new:  # else its first start would take the folder for one that lost this file
            made.write(KeptBroker(0))
        return entry
    finally:
        files.close(lock)
