"""What a gateway's log teaches: a refitted router, and an alarm when a specialist changes. Pure functions.

    refit  a router that also knows the rated requests of a log
    drift  detects that a specialist earns more or less than was expected of it

The drivers are in `cli` (`pandora learn`).
"""
