"""What a running gateway remembers: decisions, attempts, feedback, keys, budgets, sessions, generations.

    rows         the records that go in and come out, as frozen dataclasses
    money        exact sums: integers of a billionth of a dollar; names of budget periods
    database     one SQL dialect over two drivers: SQLite (embedded) and PostgreSQL (several hosts)
    migrations   the numbered steps that build the schema
    accounts     API keys, rate limits, budgets: reserve before a call, settle after it, release the rest
    log          decisions, attempts, feedback, sessions, generations, retention
    rollups      sums per minute and hour that grow with the log
    queries      what pages ask: sums over time, quantiles, filtered lists of decisions
    reading      a read-only connection with a thread of its own
    worker       the asynchronous edge: one thread per process that commits many operations together
    export       traffic as Parquet, and traffic with feedback as a routing table

Every operation is a plain function of an open transaction, so several of them can be committed together.
"""
