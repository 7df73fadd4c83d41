"""
The topics of an application, and the types of message in each.

Used by the tables and by the AsyncAPI document. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from headrace.domain.topics import command_topic
from headrace.registration.definition import Definition

__all__ = ["CataloguedTopic", "topics_of"]


@dataclass(frozen=True, slots=True)
class CataloguedTopic:
    """One topic.

    Attributes:
        address: its name at the broker.
        carries: what is in it, in a sentence.
        action: whether the application receives from it or sends to it.
        types: of its messages.
    """

    address: str
    carries: str
    action: Literal["receive", "send"]
    types: Sequence[type[BaseModel]]


def topics_of(definition: Definition) -> list[CataloguedTopic]:
    """Returns the topics that an application receives from and sends to."""
    name = definition.name
    # Events are known as a set.
    event_types = sorted(definition.events, key=lambda one: (one.message_name, one.message_version))
    by_topic: dict[str, list[type[BaseModel]]] = {}
    for one in definition.commands:
        by_topic.setdefault(command_topic(name, one.message_topic), []).append(one)
    found = [
        CataloguedTopic(topic, "commands, as JSON; the fields are in `data`", "receive", types)
        for topic, types in sorted(by_topic.items())
    ]
    events = "what a command did, as JSON; each event is in `events`, its fields in `data`"
    found.append(CataloguedTopic(f"{name}.events", events, "send", event_types))
    if definition.messages:
        text = "application messages, as JSON; the fields are in `data`"
        found.append(CataloguedTopic(f"{name}.messages", text, "send", list(definition.messages)))
    return found
