"""Specialists: who answers a request, how an answer is begun, and what it costs.

    request     Request and Message: what is asked, with the turns of the conversation before it
    answer      Answer, Unanswered
    beginning   Beginning: an answer that was started and can go on or be cancelled
    specialist  the Specialist protocol
    prices      Tariff: what is charged, and the worst case before a call
    asking      Asking: how a chat model is asked, as the body that is sent
    completion  reading a chat completion, whole or from the events of a stream
    chat        a model behind an OpenAI-compatible endpoint
    local       a GGUF model in this process (extra [local])
    retrieval   BM25 over passages in front of any specialist
    sampling    several answers of one specialist, the majority wins
    function    a plain Python function
    templates   texts around a question
    threads     blocking work off the event loop

This module imports nothing; take each name from the module that defines it.
"""
