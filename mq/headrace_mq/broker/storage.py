"""
What a broker keeps its messages in: the store on its disk, and the archive behind it, if there is one.

Used by `server`, which opens it first and closes it last; uses `store` and `archive`.
"""

from collections.abc import Callable

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq.archive.archive import Archive
from headrace_mq.broker.files.epoch import KeptBroker, above_all_epochs, next_epoch
from headrace_mq.broker.files.kept_group import seen_of
from headrace_mq.broker.metadata import archive_file, broker_file, group_file
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.epochs import EPOCHS_NAME, EpochFile

__all__ = ["Storage", "unnamed_archive"]


def unnamed_archive(settings: BrokerSettings) -> str:
    """Returns what is wrong with a folder whose messages are in an archive that the settings do not name; else nothing."""
    path = archive_file(settings.store.directory).path
    if settings.archive is not None or not path.exists():
        return ""
    return (
        f"messages of this broker are in an archive ({path} says so); name it with"
        " --archive, or remove that file to do without them"
    )


class _LeadersTerm:
    """The term of a leader, for its archive; see `archive.term`."""

    def __init__(self, followers: Followers) -> None:
        self._followers = followers
        self.epoch = followers.epoch

    def starts(self, log: str) -> list[tuple[int, int]]:
        return self._followers.logs.epochs.of(log).starts

    async def confirmed(self) -> None:
        await self._followers.confirmed()

    def sound_until(self, log: str, start: int) -> int | None:
        return self._followers.logs.repairs.sound_until(log, start)

    def suspect(self, log: str, position: int, length: int) -> None:
        self._followers.logs.repairs.suspect(log, position, length)


class Storage:
    """The store and the archive of one start of a broker.

    Args:
        settings: of the broker.
        clock: the time.
        files: the file system.
        followers: of the term that this broker leads its group; None: it is in no group.

    Attributes:
        archive: behind the store, once that was opened; None where the settings name none.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        files: Files,
        followers: Followers | None = None,
    ) -> None:
        self._followers = followers
        self._settings = settings
        self._clock = clock
        self._files = files
        self._store: MessageStore | None = None
        self.archive: Archive | None = None

    def open_store(self) -> MessageStore:
        """Opens the store, which recovers what it holds.

        Raises:
            DataCorrupt, FormatTooNew: a file cannot be used; the sentence says how to go on.
            MessageQueueError: the files cannot be used, another broker uses them, or they are of a broker of a
                group and none is led.
        """
        settings, clock, files = self._settings.store, self._clock, self._files
        if self._followers is None:
            self._refuse_member()
        file = broker_file(settings.directory, files)

        def epoch() -> int:
            if self._followers is not None:
                file.write(KeptBroker(self._followers.epoch))
                return self._followers.epoch
            # Other brokers led its group in these epochs, and numbered what they delivered as it will.
            left = EpochFile(files, settings.directory)
            left.open({}, instead=above_all_epochs(clock.now_ms()))
            return next_epoch(
                file, store=settings.directory, now_ms=clock.now_ms(), files=files,
                newest=left.newest,
            )  # fmt: skip

        store = self._make_store(epoch)
        try:
            store.open()
        except DataCorrupt as error:
            directory = settings.directory
            raise DataCorrupt(
                f"{error}. `headrace store check {directory}` tells what is damaged, `headrace store"
                f" repair {directory}` what can be done"
            ) from error
        self._store = store
        if self._followers is not None:
            self._followers.attach(store)
        elif files.exists(epochs := settings.directory / EPOCHS_NAME):
            # Taken out of its group. What it writes from here on is of none of these epochs.
            files.remove(epochs)
            files.sync_directory(settings.directory)
        return store

    def _refuse_member(self) -> None:
        """Raises MessageQueueError for the folder of a broker that a group counts on; one that only tried may run alone."""
        directory, files = self._settings.store.directory, self._files
        file = group_file(directory, files)
        if not files.exists(file.path):
            return
        if files.exists(directory / EPOCHS_NAME) or seen_of(file.read()) is not None:
            raise MessageQueueError(
                f"the broker in {directory} belongs to a group; start it with --record, or remove"
                " metadata/group.json to take it out of its group and run it alone"
            )

    async def open_archive(self) -> None:
        """Opens the archive. Raises MessageQueueError where the one of earlier starts is not named."""
        if why := unnamed_archive(self._settings):
            raise MessageQueueError(why)
        if self.archive is not None:
            file = archive_file(self._settings.store.directory, self._files)
            await self.archive.open(file.read())

    async def aclose(self) -> None:
        """Makes everything durable and gives the directory back."""
        try:
            if self.archive is not None:
                await self.archive.aclose()
        finally:
            if self._store is not None:
                await self._store.aclose()

    def _make_store(self, epoch: Callable[[], int]) -> MessageStore:
        settings, clock, files = self._settings, self._clock, self._files
        gate = None if self._followers is None else self._followers.new_gate()
        if settings.archive is None:
            return MessageStore(settings.store, epoch=epoch, clock=clock, files=files, gate=gate)
        file = archive_file(settings.store.directory, files)
        term = None if self._followers is None else _LeadersTerm(self._followers)
        archive = self.archive = Archive(
            settings.archive, settings.store, clock=clock, keep=file.write, term=term
        )
        return archive.store(epoch=epoch, clock=clock, files=files, gate=gate)
