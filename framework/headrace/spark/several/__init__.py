"""
Several projections rebuilt in one pass: the topic is read, checked and decoded once for all of them.

Used by the driver, whose rebuilds meet here before they fold.
"""
