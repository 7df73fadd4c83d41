"""
What is started where an `async with` block begins, and closed where it ends.

Used by clients, which are opened and closed by an `async with` block.
"""

from types import TracebackType
from typing import Self

__all__ = ["AsyncBlock"]


class AsyncBlock:
    """Something to start and to close; `async with` does both."""

    async def start(self) -> None:
        """Begins; raises what is in the way."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Ends; nothing where it has ended."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
