"""
Names of clients: chosen in the settings, or random.

    settings.name  ─▶ client id: the name and a UUID; each connection has its own, for replies
                   └▶ member of a group: the name as it is, so that it is the same after a restart

Used by producers and consumers. Pure, but for random numbers.
"""

import uuid

from headrace_mq.settings import ConsumerSettings

__all__ = ["client_id_of", "member_of"]


def client_id_of(name: str) -> str:
    """Returns an id that no other client has; it begins with the name, if there is one."""
    return f"{name}/{uuid.uuid4()}" if name else str(uuid.uuid4())


def member_of(settings: ConsumerSettings, client_id: str) -> str:
    """Returns what a consumer is called in its group."""
    return settings.name or client_id
