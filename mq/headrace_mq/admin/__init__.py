"""
Administration of a broker over the wire.

Sits between: people and programs that look after a broker, and the broker's administrative
requests. Imports nothing here, so that whoever needs only the client loads nothing else.
"""
