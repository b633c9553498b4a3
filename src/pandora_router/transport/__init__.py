"""The one HTTP client of this package, on aiohttp (extra [http]; imported when the first call is made).

    failures    Failed: one call that brought no usable reply, and what that means for the next call
    endpoint    Endpoint: address, key, timeout, size limits
    secrets     reading a key, and removing it from everything a server sends
    parsing     JSON with bounded depth and bounded numbers
    events      parser of server-sent events
    guard       errors of the wire and the deadline, as Failed
    client      HttpCall: one POST whose reply is read whole or as a stream, within a deadline
    retries     calling again after a failure that may pass
    rate_limit  how many calls run together and how fast they start
    blocking    the same calls for code that runs on no event loop

This module imports nothing; take each name from the module that defines it.
"""
