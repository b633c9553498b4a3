"""The specialists as the gateway calls them.

    backend     endpoint, model name, prices, abilities; circuit breakers
    cost_bound  whether a request itself limits what it can cost

This module imports nothing; import from the modules above.
"""
