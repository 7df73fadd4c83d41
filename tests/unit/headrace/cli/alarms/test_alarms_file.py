"""The file of settings has units, and each mistake in it is a sentence."""

from pathlib import Path

import pytest
import typer

from headrace.cli.alarms.alarms_file import read_alarms_file

TARGET = '[[target]]\nurl = "http://127.0.0.1:9464/metrics"\n'


def test_a_file_of_settings_is_read_with_its_units(tmp_path: Path) -> None:
    file = tmp_path / "alarms.toml"
    file.write_text(f'every_ms = "30s"\nbody_bytes_max = "1MiB"\nfolder = "x"\n{TARGET}')
    found = read_alarms_file(file)
    assert (found.every_ms, found.body_bytes_max, found.folder) == (30_000, 1 << 20, Path("x"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("every_ms = 30s", "cannot be read"),
        (f'every_ms = "30"\n{TARGET}', "has no unit"),
        (f"evry_ms = 1\n{TARGET}", "evry_ms: Extra inputs"),
        ("", "target: Field required"),
        ('[[target]]\nurl = "x"\n', "target.0: Value error, this is no address"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "alarms.toml"
    file.write_text(text)
    with pytest.raises(typer.BadParameter, match=complaint):
        read_alarms_file(file)


def test_a_file_that_is_missing_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        read_alarms_file(tmp_path / "gone.toml")
