"""
A folder on any file system that Hadoop knows, by way of the session's Java.

Used by `parts`, which makes something visible with one rename. It must not know what is in the files.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.errors import ProjectionError

__all__ = ["HadoopFolder"]

# Flags of Hadoop's functions: to go into folders, and to leave a file alone that is there.
_BELOW: Final = True
_OVERWRITE: Final = False

P = ParamSpec("P")
T = TypeVar("T")


def _said(do: Callable[P, T]) -> Callable[P, T]:
    """Says in a sentence what Java throws."""

    @wraps(do)
    def said(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return do(*args, **kwargs)
        except Py4JJavaError as error:
            folder: Any = args[0]
            raise ProjectionError(f"{folder.path}: {_reason(error)}") from error

    return said


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage())


class HadoopFolder:
    """A folder, as the settings of a session reach it.

    All methods raise a `ProjectionError` where it cannot be reached.

    Args:
        spark: a session in this process's Java; not one of Spark Connect.
        path: such as `s3a://bucket/events`; without a scheme, on the session's default file system.

    Raises:
        ProjectionError: the session has no Java in this process.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not hasattr(spark, "sparkContext"):
            raise ProjectionError(
                "parts of Parquet are put in place by the driver, which Spark Connect has elsewhere;"
                " use format='delta', or run it where the Connect server is"
            )
        # PySpark has no other way to Hadoop's file systems.
        java: Any = spark._jvm  # noqa: SLF001 # the gateway has no public name
        self._java = java
        settings: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 # these are the session's own
        self._hadoop: Any = java.org.apache.hadoop.fs
        place = self._hadoop.Path(path)
        try:
            self._files: Any = place.getFileSystem(settings)
            self._place = self._files.makeQualified(place)
            address = self._place.toUri()
            self._context: Any = self._hadoop.FileContext.getFileContext(address, settings)
        except Py4JJavaError as error:
            raise ProjectionError(f"{path} cannot be opened: {_reason(error)}") from error

    @property
    def path(self) -> str:
        """Where it is, with its scheme."""
        return str(self._place.toString())

    @_said
    def folders(self, prefix: str) -> list[str]:
        """Returns the names of folders in here that begin with a prefix, sorted."""
        if not self._files.exists(self._place):
            return []
        found = (one for one in self._files.listStatus(self._place) if one.isDirectory())
        names = (str(one.getPath().getName()) for one in found)
        return sorted(name for name in names if name.startswith(prefix))

    @_said
    def sizes(self, name: str) -> dict[str, int]:
        """Returns the bytes of each file below a folder in here, by its path below that."""
        top = self._hadoop.Path(self._place, name)
        start = len(top.toUri().getPath()) + 1
        files, sizes = self._files.listFiles(top, _BELOW), {}
        while files.hasNext():
            one = files.next()
            sizes[str(one.getPath().toUri().getPath())[start:]] = int(one.getLen())
        return sizes

    @_said
    def read(self, name: str) -> bytes | None:
        """Returns what is in a file; None if there is none."""
        place = self._hadoop.Path(self._place, name)
        if not self._files.exists(place):
            return None
        file = self._files.open(place)
        try:
            text = self._java.org.apache.commons.io.IOUtils.toString(file, "UTF-8")
        finally:
            file.close()
        return str(text).encode()

    @_said
    def write(self, name: str, data: bytes) -> None:
        """Writes a new file."""
        file = self._files.create(self._hadoop.Path(self._place, name), _OVERWRITE)
        try:
            file.write(bytearray(data))
        finally:
            file.close()

    @_said
    def rename(self, name: str, to: str) -> bool:
        """Renames a folder in here; False if there is one of that name."""
        never = getattr(self._hadoop, "Options$Rename").NONE
        gateway = self._java.java.lang.reflect.Array
        how = gateway.newInstance(never.getClass(), 1)
        how[0] = never
        source, target = (self._hadoop.Path(self._place, each) for each in (name, to))
        if self._files.exists(target):
            return False
        self._context.rename(source, target, how)
        return True

    @_said
    def delete(self, name: str) -> None:
        """Removes a folder in here with everything in it."""
        self._files.delete(self._hadoop.Path(self._place, name), _BELOW)
