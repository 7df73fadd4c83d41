"""Lets `python -m headrace` do what the command `headrace` does."""

from headrace.cli import main

main()
