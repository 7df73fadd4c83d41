"""
Whether a broker would let everyone in although users were made for it: its login is off, and there are users.

That is what a forgotten `--login` does. A broker of a group then neither starts nor follows, because it would serve all
clients once it leads, and each of them may do everything. A broker that runs alone says it in its log.

Used where brokers start, and where a replica takes over the users of its group. It reads the file of users, and no rules.
"""

from pathlib import Path

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.users.user_book import KeptUsers

__all__ = ["open_door"]


def open_door(file: MetadataFile[KeptUsers], directory: Path, *, login: bool) -> str:
    """Returns what is wrong with a broker without a login in whose folder there are users; empty: nothing.

    Args:
        file: of the users.
        directory: of the store.
        login: whether the broker serves only users that have logged in.

    Raises:
        DataCorrupt, FormatTooNew: the file of users cannot be used.
    """
    if login:
        return ""
    kept = file.read()
    if kept is None or not kept.users:
        return ""
    return (
        f"there are users in {directory}, and the login of this broker is off, so each client that reaches it may do"
        " everything: start it with --login"
    )
