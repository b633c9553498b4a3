"""The HTTP client of this package, for collect, judges, remote embeddings, the gateway and the market.

Replies are parsed by httptools (extra [http]; imported when the first call is made).

    failures         Failed: one failed call; retries after a transient failure; limits on calls
    endpoint         Endpoint: address, key (removed from everything a server sends), timeout, size limits
    connections      HTTP/1.1 connections
    connection_pool  opens connections, through a proxy if asked to, and keeps them
    relay            Relay: one call whose reply is passed on unchanged
    client           HttpCall: one call whose reply is read at once or as a stream, within a deadline
    asgi             reading requests of an ASGI server; serving an ASGI application

This module imports nothing; import from the modules above.
"""
