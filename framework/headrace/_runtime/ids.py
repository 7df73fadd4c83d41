"""The only place of the framework that makes ids."""

import uuid

import uuid_utils

__all__ = ["derived_id", "new_id"]

# Any fixed UUID serves; it keeps derived ids apart from other users of version 5.
_NAMESPACE = uuid.UUID("6f1d9e0a-0f3c-5d0e-9a53-6ad3c2f5b1e7")


def new_id() -> str:
    """Returns a UUIDv7: ordered by time, unique without coordination (RFC 9562)."""
    return str(uuid_utils.uuid7())


def derived_id(*parts: str) -> str:
    """Returns the UUIDv5 of the parts: the same parts give the same id, for ever."""
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(parts)))
