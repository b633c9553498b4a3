"""The gateway: an HTTP server that routes each request with `model: "auto"` to a specialist.

    http        protocol, endpoints, limits, processes
    request     one request: who may answer, who does, what it costs
    providers   the specialists as they are called
    generation  one generation of specialists, router and settings
    incumbent   the router that is served and the candidate on trial, as the store says
    lessons     requests that are asked for what they teach, and what that may cost
    litellm     a routing plug-in for litellm's Router and proxy

This module imports nothing; import from the modules above.
"""
