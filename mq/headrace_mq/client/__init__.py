"""
The queue's clients: producers, consumers and a blocking reader.

Sits between: applications and `_net`, which moves frames to and from a broker. Knows the wire and
nothing of the broker's insides or of files.
"""
