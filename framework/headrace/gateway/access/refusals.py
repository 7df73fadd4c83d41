"""
Why a client is not let in: its token, or the gateway's own means to judge it.

Raised by what judges tokens; the door makes answers of these.
"""

__all__ = ["KeysAway", "TokenRefused"]


class TokenRefused(Exception):
    """A request that does not say who sends it.

    Args:
        reason: for the log alone.
        missing: whether there is no token at all.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class KeysAway(Exception):
    """There are no keys to judge a token by; the same token later may be good."""
