"""Which promises a broken transport breaks."""

import asyncio
import inspect
from typing import Any

from headrace.transports.local import LocalTransport


async def failures(suite: Any, adapter: type[LocalTransport]) -> list[str]:
    """Returns the tests of a suite that the adapter fails."""
    failed = []
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        case = getattr(suite, name)
        assert inspect.getdoc(case)
        made = adapter()
        fixtures = {"transport": made, "twin": made}
        try:
            async with asyncio.timeout(5):
                await case(**{one: fixtures[one] for one in inspect.signature(case).parameters})
        except Exception:  # noqa: BLE001 - a broken adapter may raise anything
            failed.append(name)
        await made.aclose()
    return failed
