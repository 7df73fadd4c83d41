"""Which topics an application's commands have."""

import pytest

from headrace.domain.message import AggregateId, Command
from headrace.domain.topics import CommandTopics, command_topic
from headrace.errors import DefinitionError


class Pay(Command):
    account_id: AggregateId


class Import(Command, topic="imports"):
    account_id: AggregateId


class Export(Command, topic="exports"):
    account_id: AggregateId


class OldImport(Command, name="Import", version=2):
    account_id: AggregateId


@pytest.fixture
def topics() -> CommandTopics:
    return CommandTopics("bank", [Pay, Import, Export])


def test_commands_share_a_topic_unless_their_type_has_one() -> None:
    assert CommandTopics("bank", [Pay]).chosen() == ["bank.commands"]
    assert command_topic("bank", Pay.message_topic) == "bank.commands"
    assert command_topic("bank", Import.message_topic) == "bank.commands.imports"


def test_the_shared_topic_is_first_and_there_even_if_no_type_uses_it(topics) -> None:
    assert topics.names == ("main", "exports", "imports")
    assert CommandTopics("bank", [Import]).names == ("main", "imports")


def test_topics_are_chosen_by_their_short_names(topics) -> None:
    everything = ["bank.commands", "bank.commands.exports", "bank.commands.imports"]
    assert topics.chosen() == everything
    assert topics.chosen(["imports", "main"]) == [everything[0], everything[2]]


def test_a_topic_that_is_not_there_is_named_with_those_that_are(topics) -> None:
    with pytest.raises(DefinitionError, match=r"bank has no topic 'import' .* main, exports, imp"):
        topics.chosen(["import"])


def test_the_topic_of_a_command_is_found_by_its_registered_name(topics) -> None:
    assert topics.of("Import") == "bank.commands.imports"
    assert topics.of("Gone") == topics.of("Pay") == "bank.commands"


def test_versions_of_one_command_with_different_topics_are_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"'Import' has two topics: 'imports' and, in version 2, 'main'"
    ):
        CommandTopics("bank", [OldImport, Import])


@pytest.mark.parametrize("topic", ["", "Imports", "1st", "a.b", "a-b", "a" * 64, "a\n"])
def test_a_topic_that_is_no_name_is_refused_where_the_command_is_defined(topic: str) -> None:
    with pytest.raises(DefinitionError, match=r"command Wrong: topic .*: start with a lower-case"):

        class Wrong(Command, topic=topic):
            account_id: AggregateId
