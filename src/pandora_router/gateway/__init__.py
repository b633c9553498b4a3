"""The gateway: clients change `base_url`, name `model: "auto"`, and the specialist worth most answers.

wires       chat completions, Responses, Messages: reading requests, usage, errors; no translation
backend     a specialist as it is called: endpoint, model name, prices, abilities
site        one generation of specialists, router and settings
eligible    who may answer a request, and why not
choosing    who answers: by name, by session, by a decision of the router
live        looks while deciding: streams begun, held, gone on with or cancelled
shown       what a stream shows of an answer while it is looked at
whole       a whole answer from a stream that a look began
chances     log-probabilities that only a look asked for, taken out again
measured    lengths, speed and caches of specialists, for what looks cost
baseline    what the best single specialist would have cost
splice      changing a member of a JSON body without rewriting it
frames      server-sent events as bytes
attempts    one call: looked at or held until its first content, settled exactly once
health      circuit breakers
sending     the way to a client: keep-alives, errors after the head has left
serving     one request from its first byte to its last
calling     how its calls are made
ledger      its rows in the store
questions   models, decisions, feedback, health; calls passed on by name
metrics     for Prometheus
telemetry   spans for OpenTelemetry
logs        logs as JSON lines
description the interface as an OpenAPI document
arriving    bounds on how slowly and how large a request's headers may arrive
litellm     a routing plug-in for litellm's Router and proxy
app         the ASGI application
server      processes, signals, reload
"""
