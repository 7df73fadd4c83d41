"""
How other programs are asked over HTTP.

Used by what fetches keys of tokens, and by the watcher of alarms; uses the standard library.
"""
