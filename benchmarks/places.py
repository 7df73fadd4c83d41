"""Where benchmarks write: folders named on the command line, made before anything is measured."""

import argparse
from pathlib import Path

__all__ = ["made_folder"]


def made_folder(text: str) -> Path:
    """Makes a folder where there is none; the `type` of an option.

    Raises:
        argparse.ArgumentTypeError: it cannot be made; the sentence says why.
    """
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be made ({error.strerror}); name a folder that you may write to"
        ) from error
    return Path(text)
