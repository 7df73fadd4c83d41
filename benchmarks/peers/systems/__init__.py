"""One module for each system: how it is started, and how its clients send and take messages."""
