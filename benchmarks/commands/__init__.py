"""How fast commands are: through the queue, in one process, and what a reader of the store sees."""
