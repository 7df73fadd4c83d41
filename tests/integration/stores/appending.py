"""
A program that appends to an event store for ever and says on its output what was acknowledged.

    appending.py URL NAME    prints `ready`, then `NAME N` after each group N of aggregates
"""

import asyncio
import itertools
import sys

from headrace.stores.base import AppendOutcome
from headrace.stores.open import open_event_store
from headrace.testing.conformance.streams import conformance_serializer, stream

GROUP = 20


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(url: str, name: str) -> None:
    store = await open_event_store(url, conformance_serializer())
    say("ready")
    for number in itertools.count():
        group = [stream(f"{name}-{number}-{place}", 1, name) for place in range(GROUP)]
        # All processes want this one, and each version has one winner.
        outcomes = await store.append([*group, stream("shared", number + 1, name + str(number))])
        if set(outcomes[:GROUP]) != {AppendOutcome.APPENDED}:
            raise SystemExit(f"group {number}: {outcomes}")
        say(f"{name} {number}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
