"""Specialists: they answer requests at a known price.

    specialist     the Specialist protocol; what it is asked, begins and answers: Request, Beginning, Answer
    chat_settings  Asking: settings for chat models, the request body, the answer in a reply
    chat           a model behind an OpenAI-compatible endpoint
    local          a GGUF model in this process (extra [local])
    retrieval      BM25 search over passages before another specialist is asked
    sampling       the most frequent of several answers of one specialist
    function       a plain Python function
    mcp            a tool of an MCP server
    templates      texts around a question
    threads        blocking work off the event loop

This module imports nothing; import from the modules above.
"""
