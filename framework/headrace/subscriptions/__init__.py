"""
What all readers of events share: the loop, the version gate, outages, messages without events.

Used by projections, event handlers and process managers; reads from the transport.
"""
