"""The broker's own files: each is found, and says how it is repaired."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.epoch import KeptBroker
from headrace_mq.broker.metadata import (
    METADATA_KINDS,
    METADATA_LOSSES,
    broker_file,
    offsets_file,
    topics_file,
)
from headrace_mq.broker.offsets import KeptOffsets
from headrace_mq.broker.topics import KeptTopics
from headrace_mq.errors import DataCorrupt

FILES = [
    (broker_file, "broker.json", KeptBroker(1)),
    (topics_file, "topics.json", KeptTopics({})),
    (offsets_file, "offsets.json", KeptOffsets({})),
]


@pytest.mark.parametrize(("file", "name", "value"), FILES)
def test_each_file_is_listed_with_its_kind_and_what_its_loss_means(
    tmp_path: Path, file: Any, name: str, value: Any
) -> None:
    file(tmp_path).write(value)
    assert (tmp_path / "metadata" / name).exists()
    assert METADATA_KINDS[name] is type(value)
    assert METADATA_KINDS.keys() == METADATA_LOSSES.keys()


@pytest.mark.parametrize(("file", "name", "value"), FILES)
def test_a_damaged_file_names_the_commands_that_repair_it(
    tmp_path: Path, file: Any, name: str, value: Any
) -> None:
    file(tmp_path).write(value)
    (tmp_path / "metadata" / name).write_bytes(b"x")
    with pytest.raises(DataCorrupt, match=name) as caught:
        file(tmp_path).read()
    assert f"`headrace store check {tmp_path}`" in str(caught.value)
    assert f"`headrace store repair {tmp_path} --apply`" in str(caught.value)
    assert METADATA_LOSSES[name] in str(caught.value)
