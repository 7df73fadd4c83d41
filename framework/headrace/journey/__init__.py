"""
The way of one command or message: who sent it, where it stands, what it did, and who has handled that.

Used by the console and the command line. It reads the broker and an application's databases, and changes nothing.
"""
