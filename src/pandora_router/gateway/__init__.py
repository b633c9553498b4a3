"""The gateway: an HTTP server that routes each request with `model: "auto"` to a specialist.

wires       chat completions, Responses, Messages: reading requests, usage, errors; no translation
backend     a specialist as it is called: endpoint, model name, prices, abilities
site        one generation of specialists, router and settings
eligible    which specialists may answer a request, and why the others may not
choosing    which specialist answers: by name, by session, or by a decision of the router
live        looks during a decision: streams are begun and held, then continued or cancelled
shown       the context of an answer, read from its stream during a look
whole       a complete answer assembled from the stream of a look
chances     removal of log-probabilities that only a look requested
measured    lengths, speed and caches of specialists, for the price of looks
baseline    what the best single specialist would have cost
members     reading members of a JSON body
splice      changing a member of a JSON body without rewriting it
frames      server-sent events as bytes
speech      plain texts as answers on the three wires
spoken      answers of bidders as replies of an endpoint
attempts    one call: held until its first content, settled exactly once
health      circuit breakers
sending     responses to a client: keep-alives, errors after the headers were sent
serving     one request from its first byte to its last
calling     how its calls are made
ledger      its rows in the store
passing     embeddings and token counts, passed on by name
endpoints   models, decisions, feedback, health
metrics     for Prometheus
telemetry   spans for OpenTelemetry
logs        logs as JSON lines
description the interface as an OpenAPI document
arriving    limits on time and size of a request's headers
litellm     a routing plug-in for litellm's Router and proxy
app         the ASGI application
server      processes, signals, reload
"""
