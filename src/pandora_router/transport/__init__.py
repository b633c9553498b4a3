"""The HTTP client of this package, on aiohttp (extra [http]; imported when the first call is made).

Calls that the gateway passes on unchanged use connections of their own, with httptools (extra [serve]).

    failures         Failed: one failed call, and what that means for the next call
    endpoint         Endpoint: address, key, timeout, size limits
    secrets          reading a key, and removing it from everything a server sends
    strict_json      JSON with limited depth and limited numbers
    events           parser of server-sent events
    call_errors      connection errors and timeouts as Failed
    client           HttpCall: one POST whose reply is read at once or as a stream, within a deadline
    connections      HTTP/1.1 connections for replies that are passed on
    connection_pool  opens and keeps those connections
    relay            Relay: one POST whose reply is passed on unchanged
    retries          retry after a transient failure
    rate_limit       limits on concurrent calls and on calls per minute
    asgi             reading requests of an ASGI server
    listener         serving an ASGI application

This module imports nothing; import from the modules above.
"""
