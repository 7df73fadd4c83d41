"""Codecs: what is packed unpacks to the same bytes, and nothing else is believed."""

import pytest

from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.compression import CODECS, PLAIN_BYTES_MAX, compress, decompress

PLAIN = b"the same again; " * 200


@pytest.mark.parametrize("codec", CODECS.values())
def test_a_payload_unpacks_to_what_was_packed(codec: int) -> None:
    assert bytes(decompress(codec, compress(codec, PLAIN), len(PLAIN))) == PLAIN


@pytest.mark.parametrize("codec", [CODECS["lz4"], CODECS["zstd"]])
def test_a_payload_that_is_none_of_its_codec_is_damage(codec: int) -> None:
    with pytest.raises(DataCorrupt):
        decompress(codec, b"\xff" * 40, 100)


@pytest.mark.parametrize("codec", [CODECS["lz4"], CODECS["zstd"]])
def test_a_payload_that_says_to_unpack_to_too_much_is_not_unpacked(codec: int) -> None:
    with pytest.raises(DataCorrupt, match=str(PLAIN_BYTES_MAX)):
        decompress(codec, compress(codec, PLAIN), PLAIN_BYTES_MAX + 1)


def test_an_unknown_codec_is_damage() -> None:
    with pytest.raises(DataCorrupt, match="codec 9"):
        decompress(9, PLAIN, len(PLAIN))
