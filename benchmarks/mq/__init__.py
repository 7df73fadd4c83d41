"""How fast the queue is: a real broker and real clients in processes of their own, on loopback."""
