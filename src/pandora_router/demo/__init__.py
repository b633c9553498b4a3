"""The demo: specialists that really compute, measured costs, recorded and live answers.

    questions      questions with answers that can be checked, recorded and fresh ones
    specialists    the six specialists, and what a look at each shows
    records        recording their answers and times
    study          fitting on the recorded answers; ways to route compared on held-out questions,
                   in sentences and one small table
    live_route     questions routed one by one, through running or recorded specialists
    page           everything as one HTML page, with example decisions
    local_gateway  `pandora serve --demo`: the specialists as a provider, a gateway before it, a fitted router

This module imports nothing; import from the modules above.
"""
