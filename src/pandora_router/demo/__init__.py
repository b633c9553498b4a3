"""The demo: specialists that really compute, measured costs, recorded and live answers.

    facts        capitals, elements and definitions, and a corpus with half of them
    questions    questions with answers that can be checked, recorded and fresh ones
    grading      what counts as a right answer
    calculator   sympy on the one expression in a question
    people       the six specialists, and what a look at each shows
    recording    recording their answers and times
    study        fitting on the recorded answers; ways to route compared on held-out questions
    headline     what routing earns, in sentences and one small table
    routing      questions routed one by one, through running or recorded specialists
    page         everything as one HTML page, with example decisions
    upstream     the specialists behind one HTTP address
    local_gateway  `pandora serve --demo`: the upstream behind a gateway, with a fitted router

This module imports nothing; import from the modules above.
"""
