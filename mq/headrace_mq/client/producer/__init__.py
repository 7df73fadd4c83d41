"""
Sending: from one message to acknowledged batches, in order per queue.

Used by applications, and by other rooms of the client that send. Knows no consumer.
"""
