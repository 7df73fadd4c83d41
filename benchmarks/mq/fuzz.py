"""
Throws damaged bytes at everything that decodes what comes from a socket.

    python -m benchmarks.mq.fuzz [--inputs 1000000] [--seed 0]

Each input is a stream of frames with sound or made-up bodies that was damaged: bits flipped, bytes
cut out, doubled or replaced, lengths overwritten, or nothing but noise. It is fed to the frame
reader whole and in pieces, which must agree; what comes out is decoded as every body and as record
batches. Only the errors of the queue may be raised. Prints one line of JSON; the exit code is 1
when something else was raised, with the input that did it.
"""

import argparse
import json
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import SCRAM, Credentials, Login, RuleEntry, SetRule, SetUser
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    check_head,
    check_whole,
    decode_columns,
    decode_records,
    encode_batch,
    split_batches,
)
from headrace_mq.protocol.bodies import (
    Body,
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    Hello,
    HelloAnswer,
    JoinGroup,
    ProduceAnswer,
    Produced,
    decode,
    decode_fetch_answer,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.frame import FrameReader, encode_frame

__all__ = ["Outcome", "damaged", "decode_everything", "fuzz", "sound_streams"]

FRAME_BYTES_MAX = 1 << 16
# What a damaged length field is set to: the edges that go wrong in decoders.
LENGTHS = (0, 1, 11, 12, 13, 127, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


class Outcome(Exception):
    """An input after which the decoders did what they must not."""


def sound_streams() -> list[bytes]:
    """Streams as clients and brokers send them."""
    batches = []
    for codec, count in (("none", 1), ("none", 30), ("lz4", 20), ("zstd", 20)):
        columns = Columns(
            [f"k{n}" for n in range(count)], ["t"] * count, [{"h": "v"}] * count,
            [b"body" * n for n in range(count)], list(range(count)),
        )  # fmt: skip
        batch = encode_batch(QueueRef("topic", 3), columns, born_first_ms=5, codec=codec)
        assign(batch, base_offset=7, position=99, appended_at_ms=6, epoch=2)
        batches.append(bytes(batch))
    answer = encode_fetch_answer(FetchAnswer([FetchedQueue("topic", 3, 0, 60)]))
    bodies: list[tuple[bytes, ...]] = [
        (encode(Hello("me", 1, 1, "fuzz")),),
        (encode(HelloAnswer("far", 1, 1, 1 << 20)),),
        (encode(JoinGroup("g", "m", ["a", "b"])),),
        (encode(Fetch([FetchFrom("topic", 3, 5)], 1 << 20, 100, "g")),),
        (encode(ProduceAnswer([Produced("topic", 3, 7)])),),
        (encode(Login(SCRAM, "n,,n=ann,r=1f7c")),),
        (
            encode(
                SetUser(
                    "add",
                    "ann",
                    [Credentials(b"s" * 32, b"k" * 32, b"v" * 32, 4_096)],
                    roles=["clerks"],
                    admin=1,
                )
            ),
        ),
        (encode(SetRule(RuleEntry("ann", "publish", "topic:orders.*", allows=True))),),
        *((batch,) for batch in batches),
        (answer, *batches),
    ]
    return [encode_frame(number, number, *parts) for number, parts in enumerate(bodies)]


def damaged(stream: bytes, chance: random.Random) -> bytes:
    """The stream with one to four kinds of damage."""
    data = bytearray(stream)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(6):
            case 0 if data:
                data[at] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at] = chance.randrange(256)
            case 2:
                del data[at : at + chance.randint(1, 9)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 40)]
            case 4 if len(data) >= 4:
                at = min(at, len(data) - 4)
                data[at : at + 4] = struct.pack("<I", chance.choice(LENGTHS))
            case _:
                data[at : at + 8] = chance.randbytes(8)
    return bytes(data)


def frames_of(pieces: list[bytes]) -> list[object]:
    """What the reader makes of the pieces; an error, which ends it, is the last entry."""
    reader = FrameReader(FRAME_BYTES_MAX)
    found: list[object] = []
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                found.append((*frame[:4], bytes(frame.body)))
    except MessageQueueError as error:
        found.append(type(error))
    return found


def decode_everything(body: bytes) -> Iterator[str]:
    """Decodes one body as everything there is; yields the name of what it turned out to be."""

    def batches() -> None:
        for batch in split_batches(body):
            check_head(batch)
            decode_records(batch)

    def unchecked() -> None:
        # Damage that a checksum would find: a hostile client writes one that fits.
        for batch in split_batches(body):
            decode_columns(batch, check_whole(batch))

    ways: dict[str, Callable[[], object]] = {
        "batches": batches,
        "unchecked": unchecked,
        "answer to FETCH": lambda: decode_fetch_answer(memoryview(body)),
    }
    for kind in Body.__subclasses__():
        ways[kind.__name__] = lambda kind=kind: decode(kind, memoryview(body))
    for name, way in ways.items():
        try:
            way()
        except MessageQueueError:
            continue
        yield name


def handled(stream: bytes, at: int, *, thorough: bool) -> list[str]:
    """Handles one input, cut at a place; returns what was found in it."""
    found = frames_of([stream])
    if found != frames_of([stream[:at], stream[at:]]):
        raise AssertionError("the reader depends on how the bytes are cut")
    bodies = [frame[4] for frame in found if isinstance(frame, tuple)]
    kinds = ["frames"] * len(bodies)
    if thorough:
        kinds += [kind for body in bodies for kind in decode_everything(body)]
    return kinds


def fuzz(inputs: int, seed: int) -> Counter[str]:
    """Tries so many inputs; returns how often each kind of thing was decoded.

    Raises Outcome for the first input that raised anything but an error of the queue.
    """
    chance = random.Random(seed)
    streams = sound_streams()
    seen: Counter[str] = Counter()
    for number in range(inputs):
        if chance.random() < 0.05:
            stream = chance.randbytes(chance.randrange(200))
        else:
            stream = damaged(b"".join(chance.choices(streams, k=chance.randint(1, 2))), chance)
        at = chance.randrange(len(stream) + 1)
        try:
            # Every kind on half of the inputs keeps a million of them within minutes.
            seen.update(handled(stream, at, thorough=number % 2 == 0))
        except Exception as error:
            raise Outcome(f"{error!r} on input {number}: {stream.hex()}") from error
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mq.fuzz")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = time.process_time()
    try:
        seen = fuzz(asked.inputs, asked.seed)
    except Outcome as outcome:
        print(json.dumps({"benchmark": "fuzz", "failed": str(outcome)}))
        sys.exit(1)
    line = {"benchmark": "fuzz", "inputs": asked.inputs, "seed": asked.seed, "decoded": seen}
    print(json.dumps({**line, "cpu_seconds": round(time.process_time() - began, 1)}))


if __name__ == "__main__":
    main()
