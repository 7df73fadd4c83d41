"""
The queue's clients: producers, consumers and a blocking reader.

Used by applications; uses `_net`, which moves frames to and from a broker. Knows the wire, but no
part of the broker.
"""
