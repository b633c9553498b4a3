"""What a gateway's log teaches: a refitted router, a price that meets a budget, alarms. Pure functions.

    refit        a router that also knows the rated requests of a log
    exploration  what asking another specialist would teach, against what it costs
    evidence     whether a candidate is better than the serving router, read at any time
    pace         the worth of a right answer at which a budget lasts
    drift        detects that a specialist earns more or less than was expected of it
    mix          detects that the mix of prompts has changed

The drivers are in `cli` (`pandora learn`) and `gateway` (budgets, trials, alarms).
"""
