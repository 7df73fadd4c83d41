"""
What every reader of events needs: the version gate, outages, foreign messages.

Sits between: transports and the readers of events.
"""
