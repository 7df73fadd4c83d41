"""
Whether the login of a broker fits the users in its folder.

    no login, and users             an open door: someone forgot `--login`
    a login, and no administrator   no one could get in; so such a broker makes no group, and waits for the one that has one
    a login, and a group without    no one could get in once it leads; so it neither enters nor leads that group

A broker of a group with an open door neither starts nor follows, because it would serve all clients once it leads, and each of
them may do everything. A broker that runs alone says it in its log.

Used where brokers start, and where a replica takes over the users of its group. It reads the file of users, and no rules.
"""

from pathlib import Path

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.users.user_book import KeptUsers, UserBook
from headrace_mq.errors import MessageQueueError

__all__ = ["group_without_users", "no_administrator", "open_door"]


def open_door(file: MetadataFile[KeptUsers], directory: Path, *, login: bool) -> str:
    """Returns what is wrong with a broker without a login in whose folder there are users; empty: nothing.

    Args:
        file: of the users.
        directory: of the store.
        login: whether the broker serves only users that have logged in.

    Raises:
        DataCorrupt, FormatTooNew: the file of users cannot be used.
        MessageQueueError: the file cannot be read.
    """
    if login:
        return ""
    try:
        kept = file.read()
    except OSError as error:
        raise MessageQueueError(
            f"the users in {directory} cannot be read: {error}; check the folder and its owner"
        ) from error
    if kept is None or not kept.users:
        return ""
    return (
        f"there are users in {directory}, and the login of this broker is off, so each client that reaches it may do"
        " everything: start it with --login"
    )


def no_administrator(file: MetadataFile[KeptUsers], directory: Path, *, login: bool) -> str:
    """Returns why a broker must not make a group; empty: it may. Arguments and errors as for `open_door`."""
    if not _lacks_administrator(file, login=login):
        return ""
    return (
        f"with login on, the first broker of a group needs an administrator, and there is none in {directory}, so this one waits"
        " for a broker that has one: start that first, or make one with `headrace user add NAME --admin --data FOLDER`"
    )


def group_without_users(file: MetadataFile[KeptUsers], *, login: bool) -> str:
    """Returns why a broker must not enter or lead the group whose users it has copied; empty: it may.

    Args:
        file: of the users, as the group has them.
        login: whether the broker serves only users that have logged in.

    Raises:
        DataCorrupt, FormatTooNew: the file of users cannot be used.
    """
    if not _lacks_administrator(file, login=login):
        return ""
    return (
        "this broker runs with --login, and its group has no users, because the other brokers run without: start it without"
        " --login, as the others. To give the group a login, stop all its brokers, make an administrator in the folder of the"
        " one that led with `headrace user add NAME --admin --data FOLDER`, start that one first, and all of them with --login"
    )


def _lacks_administrator(file: MetadataFile[KeptUsers], *, login: bool) -> bool:
    if not login:
        return False
    book = UserBook(file)
    book.load()
    return not book.has_admin
