"""The demo: specialists that really compute, measured costs, recorded and live answers.

    facts        capitals, elements and definitions, and the corpus that says half of them
    puzzles      questions of reasoning-gym
    questions    questions with answers that can be checked, recorded and fresh ones
    grading      what counts as a right answer
    calculator   sympy on the one expression in a question
    people       the six specialists and what each may show before it answers
    recording    running them all, the file of what they said and took
    study        fitting on the recorded answers, ways to route compared on held-out questions
    headline     what routing earns, in sentences and one small table
    stories      decisions worth telling
    live         questions routed one by one, through running or recorded specialists
    page         all of it as one HTML page
    speaking     answers in the shapes of the three wires
    upstream     the specialists behind one HTTP address
    serving      `pandora serve --demo`: the upstream behind a gateway, with a fitted router

This module imports nothing; take what you need from the one that has it.
"""
