"""Specialists: they answer requests at a known price.

    request        Request and Message: the prompt, with the conversation before it
    answer         Answer, Unanswered
    beginning      Beginning: an answer that was started and can be continued or cancelled
    specialist     the Specialist protocol
    chat_settings  Asking: settings for chat models, the request body, the answer in a reply
    chat           a model behind an OpenAI-compatible endpoint
    local          a GGUF model in this process (extra [local])
    retrieval      BM25 search over passages before another specialist is asked
    sampling       the most frequent of several answers of one specialist
    function       a plain Python function
    templates      texts around a question
    threads        blocking work off the event loop

This module imports nothing; import from the modules above.
"""
