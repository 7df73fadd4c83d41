"""
The catalogue of an application: its commands, events, topics and projections, as a page or a document.

Used by `headrace catalog`; reads `App.definition`. Pure.
"""
