"""
A broker in a process of its own, forked from one that has imported the broker's modules already.

    the tests ─▶ a process that imports, once ─▶ a broker for each test, without its imports
"""

import multiprocessing
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["ForkedBroker"]

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["structlog", "uvloop", "headrace_mq.broker.process"])
# A broker that takes longer hangs.
_SECONDS_MAX: Final = 120


class ForkedBroker:
    """A broker that runs until it is stopped.

    Args:
        directory: its data.
        port: where it listens on 127.0.0.1.
        settings: of its store, in place of the defaults.
    """

    def __init__(self, directory: Path, port: int, **settings: Any) -> None:
        said, say = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(
            target=_run, args=(directory, port, settings, say), daemon=True
        )
        self._process.start()
        say.close()
        try:
            assert said.poll(_SECONDS_MAX), "the broker did not start in time"
            self.address: str = said.recv()
        except EOFError:
            raise AssertionError("the broker did not start") from None
        finally:
            said.close()

    def stop(self) -> None:
        """Returns when it has ended by itself."""
        self._process.terminate()
        self._process.join(_SECONDS_MAX)
        assert self._process.exitcode == 0, (
            f"the broker did not stop well: {self._process.exitcode}"
        )
        self._process.close()


def _run(directory: Path, port: int, settings: dict[str, Any], say: "Connection[str, Any]") -> None:
    import structlog

    from headrace_mq.broker.process import run
    from headrace_mq.settings import BrokerSettings, StoreSettings

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = StoreSettings(directory=directory, **settings)
    run(BrokerSettings(store=store, port=port), ready=say.send)
