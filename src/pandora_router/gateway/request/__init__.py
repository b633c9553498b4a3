"""One request to the gateway, from its body to its bill.

    exchange        one request from its first byte to its last
    eligible        the JSON object in its body; which specialists may answer, and why the others may not
    choice          which specialist answers: by name, by session, or by a decision of the router
    looks           looks during a decision: streams are begun and held, then continued or cancelled
    auction_choice  `routing: market`: an auction chooses who answers a request
    calls           how its calls are made, also to specialists of another wire
    attempts        one call: held until its first content, settled exactly once
    ledger          its rows in the store
    passthrough     embeddings, token counts and stored responses, passed to one specialist

This module imports nothing; import from the modules above.
"""
