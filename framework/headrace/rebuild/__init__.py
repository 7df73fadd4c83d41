"""
Rebuilding read models next to the live ones: what each engine does, and the switch at the end.

Sits between: the command line and the two places where events are kept.
"""
