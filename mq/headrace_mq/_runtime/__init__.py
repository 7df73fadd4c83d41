"""
Clock and the like: what the queue asks of the machine besides bytes.

Used by every other package; uses the operating system. It knows nothing of messages.
"""
