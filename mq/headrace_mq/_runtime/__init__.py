"""
Clock and the like: what the queue asks of the machine besides bytes.

Sits between: everything else and the operating system. Knows nothing of messages.
"""
