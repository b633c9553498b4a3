"""Who answers a prompt, and what the answer costs.

    answer      Answer, Prices, the Specialist protocol, Unanswered
    endpoint    one try at an OpenAI-compatible HTTP endpoint, in the standard library
    endpoint_failures   a try that brought nothing
    streaming   an answer that comes in pieces, put together again
    gate        how many calls at once and per minute an endpoint allows
    chat        a model behind such an endpoint
    retrieval   BM25 over passages in front of any specialist
    sampling    several answers of one specialist, the majority wins
    function    a plain Python function
    local       a GGUF model in this process (extra [local])
    templates   the words around a question

This module imports nothing; take what you need from the one that has it.
"""
