"""The gateway: an HTTP server that routes each request with `model: "auto"` to a specialist.

    http        protocol, endpoints, limits, processes
    request     one request: who may answer, who does, what it costs
    providers   the specialists as they are called
    generation  one generation of specialists, router and settings; the router and the candidate of the store
    lessons     requests that are asked for what they teach, and what that may cost
    litellm     a routing plug-in for litellm's Router and proxy

This module imports nothing; import from the modules above.
"""
