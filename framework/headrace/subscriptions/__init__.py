"""
What every reader of events needs: its loop, the version gate, outages, foreign messages.

Sits between: transports and the readers of events.
"""
