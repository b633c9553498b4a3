"""Run specialists over prompts, grade what they say, resume where it stopped: a routing table comes out.

    exact         numbers that stay exact as long as they can
    mathematics   are two results the same number, expression, tuple or set?
    graders       what an answer is worth beside its reference
    journal       every call and bought answer, on disk before it counts
    budget        money spent, lost and reserved; the limit holds
    run           prompts x specialists x samples -> data.Table
    assemble      answers and grades -> the table

This module imports nothing; take what you need from the one that has it.
"""
