"""
The topics that an application's commands travel through: one for all, and those of single types.

Used by command classes, which name their topics, and by publishers and subscribers. Pure.
"""

from collections.abc import Collection

from headrace.domain.message import MAIN_TOPIC, Command
from headrace.errors import DefinitionError

__all__ = ["CommandTopics", "command_topic"]


def command_topic(name: str, own: str = MAIN_TOPIC) -> str:
    """The topic of an application's commands: the one for all, or that of some types."""
    return f"{name}.commands" if own == MAIN_TOPIC else f"{name}.commands.{own}"


class CommandTopics:
    """Every topic of an application's commands.

    Args:
        name: the application's name.
        command_types: those that it handles.

    Raises:
        DefinitionError: versions of one command have different topics.
    """

    def __init__(self, name: str, command_types: Collection[type[Command]]) -> None:
        self._name = name
        self._own: dict[str, str] = {}
        for each in sorted(command_types, key=lambda one: one.message_version):
            own = self._own.setdefault(each.message_name, each.message_topic)
            if own != each.message_topic:
                raise DefinitionError(
                    f"command {each.message_name!r} has two topics: {own!r} and, in version"
                    f" {each.message_version}, {each.message_topic!r}; give all its versions the"
                    " same topic=…"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Their short names, the one for all first; it is there whether or not a type uses it."""
        return (MAIN_TOPIC, *sorted({*self._own.values()} - {MAIN_TOPIC}))

    def chosen(self, names: Collection[str] = ()) -> list[str]:
        """Returns the topics of these short names; of none: all of them.

        Raises:
            DefinitionError: the application has no topic of such a name.
        """
        for each in names:
            if each not in self.names:
                raise DefinitionError(
                    f"{self._name} has no topic {each!r} for commands; it has:"
                    f" {', '.join(self.names)}"
                )
        return [
            command_topic(self._name, each) for each in self.names if each in names or not names
        ]

    def of(self, command_name: str) -> str:
        """Returns the topic of a command by its registered name; the one for all if unknown."""
        return command_topic(self._name, self._own.get(command_name, MAIN_TOPIC))
