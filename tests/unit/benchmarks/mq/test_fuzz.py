import random
from typing import Any

import pytest

from benchmarks.mq import fuzz as module
from benchmarks.mq.fuzz import Outcome, damaged, decode_everything, fuzz
from headrace_mq.protocol.bodies import Hello, encode


def test_damaged_bytes_raise_nothing_but_errors_of_the_queue() -> None:
    seen = fuzz(5_000, seed=1)
    assert seen["frames"] > 1_000
    assert {"batches", "unchecked", "Hello", "ProduceAnswer"} <= set(seen)


def test_a_decoder_that_raises_something_else_is_found_with_its_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(body: Any) -> object:
        return body[40]

    monkeypatch.setattr(module, "decode_fetch_answer", careless)
    with pytest.raises(Outcome, match=r"IndexError.* on input [0-9]+: [0-9a-f]*"):
        fuzz(2_000, seed=1)


def test_a_reader_that_depends_on_how_the_bytes_are_cut_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Forgetful(module.FrameReader):
        def feed(self, data: bytes) -> Any:
            yield from super().feed(data)
            self.held = bytearray()

    monkeypatch.setattr(module, "FrameReader", Forgetful)
    with pytest.raises(Outcome, match="depends on how the bytes are cut"):
        fuzz(2_000, seed=1)


def test_a_sound_body_is_recognised_and_a_hostile_one_refused() -> None:
    assert "Hello" in set(decode_everything(encode(Hello("me", 1, 1, "x"))))
    assert set(decode_everything(b"\xff")) == set()


def test_damage_is_the_same_for_the_same_seed() -> None:
    stream = bytes(range(200))
    first, again = (damaged(stream, random.Random(3)) for _ in range(2))
    assert first == again != stream
