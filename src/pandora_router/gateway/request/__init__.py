"""One request to the gateway, from its body to its bill.

    exchange        one request from its first byte to its last
    eligible        the JSON object in its body; which specialists may answer, and why the others may not
    choice          which specialist answers: by name, by session, or by a decision of the router
    trial           a candidate router on trial: a coin says which of two routers decides
    looks           looks during a decision: streams are begun and held, then continued or cancelled
    auction_choice  `routing: market`: an auction chooses who answers a request
    calls           how its calls are made, also to specialists of another wire
    attempts        one call: held until its first content, settled exactly once
    ledger          its rows in the store
    passthrough     embeddings, token counts and stored responses, passed to one specialist

The states of a request, what brings it there, and what happens if that fails:

    | read     | `Exchange.read`                  | refused: it is no request of its wire
    | known    | `Exchange.identify`              | refused: its key is not valid
    | chosen   | `Exchange.choose`, with looks    | refused: nobody can answer it
    | recorded | `Exchange._record`               | refused: over a budget or a rate
    | asked    | `Exchange._ask`                  | the next of `Succession` is asked; refused after the last
    | sent     | `Exchange._relay`, `_send_whole` | a stream ends with an error; nobody else can take over
    | closed   | `Exchange._finish`, `abandon`    | the store recovers it when the worker has died

The states of an attempt (a `RunningAttempt`), and where each leads:

    | made     | `Caller.attempt`                            | recorded
    | recorded | `Exchange._record`, `_record_looks`         | opened; its row is `open`
    | opened   | `RunningAttempt.open`, `receive`            | held, read, or settled as `error`
    | held     | `RunningAttempt.hold`, `look`               | read if chosen, else settled as `loser`
    | read     | `RunningAttempt.rest`, `whole`, `assembled` | settled: `ok`, `error`, `cancelled`
    | settled  | `RunningAttempt.settle`, `end`              | nothing; `lost` if its worker died

This module imports nothing; import from the modules above.
"""
