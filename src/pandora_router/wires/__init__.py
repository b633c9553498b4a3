"""Chat completions, Responses, Messages: one module for each wire. Pure: bytes and objects in and out.

    wire       what a wire does, and what routing reads of a request
    chat       OpenAI's chat completions
    responses  OpenAI's Responses
    messages   Anthropic's Messages
    usage      token counts, and what else a call is billed for
    look       the context of an answer, read from its stream during a look
    events     server-sent events as bytes, and a whole answer joined from them
    json_text  reading members of a JSON object, changing one without rewriting the rest
    demand     what a request asks for beside plain tokens
    own_members  members of every request to a specialist; the effort on each wire
    known      the three wires by name and by path
    translation  the neutral form in which the wires meet
    translation_chat, translation_responses, translation_messages  each reads it from a wire and writes it
    translator  a request or an answer of one wire in the format of another

This module imports nothing; import from the modules above.
"""
