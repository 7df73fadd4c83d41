"""
Seats of a conference, reserved until they are paid: a process with a timeout and a compensation.

    orders         an order: placed, reserved, then paid, refused or expired
    seats          the seats of a conference: never more promised than there are
    registrations  what leads from one to the other, and gives unpaid seats back
    application    the App, with a read model of the seats
"""

from samples.conference.application import app

__all__ = ["app"]
