"""Collect answers: run specialists over prompts, grade their answers, write a routing table; resumable.

    mathematics   are two results the same number, expression, tuple or set?
    graders       score of an answer given its reference
    journal       every call and bought answer, on disk before it is used; the budget
    collection    prompts x specialists x samples -> data.Table
    assemble      answers and grades -> the table

This module imports nothing; import from the modules above.
"""
