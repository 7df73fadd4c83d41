"""
Administration of a broker over the wire.

Used by the command line, and by programs that look after a broker. Imports nothing here, so that a
program that uses only the client loads nothing else.
"""
