"""The gateway as a server: protocol, endpoints, limits, processes.

    protocol       limits on time and size of a request's headers
    app            the ASGI application
    endpoints      models, decisions, feedback, health
    mcp_tools      the tools route and explain for agents, at /mcp
    client_stream  responses to a client: keep-alives, errors after the headers were sent
    openapi        the interface as an OpenAPI document
    telemetry      logs as JSON lines, spans for OpenTelemetry, metrics for Prometheus
    server         processes, signals, reload
    chores         settles what dead processes left open, deletes what is old
    learner        verdicts on trials, drift of specialists, alerts

This module imports nothing; import from the modules above.
"""
