"""What `history list` tells of a part as JSON."""

import json
from datetime import UTC, datetime
from pathlib import Path

from headrace.spark.history.overview import ListedPart, overview


def test_a_folder_without_parts_has_none_and_a_part_is_one_line_of_json(tmp_path: Path) -> None:
    assert overview(tmp_path) == []
    part = ListedPart(
        part=1, topic="a.events", start={0: 0}, end={0: 5}, messages=5, events=4, bytes=9,
        sealed_at=datetime(2026, 1, 31, tzinfo=UTC), store="s-1",
    )  # fmt: skip
    told = json.loads(part.to_json())
    assert (told["part"], told["end"], told["sealed_at"]) == (1, {"0": 5}, "2026-01-31T00:00:00Z")
