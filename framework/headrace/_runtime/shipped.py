"""
Files that come with the package: within it once it is installed, or next to the source in a checkout.

Used by the schema of databases and by the command line; looks at the file system.
"""

from pathlib import Path

from headrace.errors import DefinitionError

__all__ = ["shipped_folder"]


def shipped_folder(
    installed: str, checkout: str, *, mark: str, package: Path | None = None
) -> Path:
    """Returns a folder that comes with the package.

    Args:
        installed: its path within the installed package.
        checkout: its path within a checkout.
        mark: a file that is always in it.
        package: the folder of the package `headrace`; that of the running one by default.

    Raises:
        DefinitionError: neither place has it; the installation is not whole.
    """
    package = package or Path(__file__).parents[1]
    for folder in (package / installed, package.parents[1] / checkout):
        if (folder / mark).is_file():
            return folder
    raise DefinitionError(f"{package} has no {mark}; install headrace again")
