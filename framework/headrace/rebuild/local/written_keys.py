"""
Which keys a rebuild has written, in memory that does not grow: a Bloom filter.

Of a key that was written it always says so; of one that was not it seldom says so by mistake. So a key
of which it says no is in no table, needs no look there, and may be copied in.

Used by `rows_in_memory`. Pure; it must not know a database.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["WrittenKeys"]

# Bits of the filter, 16 MiB: after 10,000,000 keys it is wrong of 2 keys in 100, and of half of them
# after 85,000,000, which costs a look each.
_BITS_MAX: Final = 1 << 27


class WrittenKeys:
    """Knows keys for as long as this process lives.

    Args:
        bits: of memory, a power of two up to 4,294,967,296.
    """

    def __init__(self, bits: int = _BITS_MAX) -> None:
        self._mask = bits - 1
        self._bits = bytearray(max(bits >> 3, 1))

    def add(self, keys: Iterable[str]) -> None:
        """Takes in keys that were written."""
        bits, mask = self._bits, self._mask
        for key in keys:
            # Two halves of one hash, of which each is one.
            number = hash(key)
            one, other = number & mask, number >> 32 & mask
            bits[one >> 3] |= 1 << (one & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def among(self, keys: Iterable[str]) -> set[str]:
        """Returns those of some keys that may have been written; the others were not."""
        bits, mask = self._bits, self._mask
        found = set()
        for key in keys:
            number = hash(key)
            one, other = number & mask, number >> 32 & mask
            if bits[one >> 3] >> (one & 7) & 1 and bits[other >> 3] >> (other & 7) & 1:
                found.add(key)
        return found
