"""Programs that show how Headrace is used; `bank` is the one to read first."""
