"""The database of a gateway: decisions, attempts, feedback, keys, budgets, sessions, generations.

    rows         the records that go in and come out, as frozen dataclasses
    money        exact sums: integers of a billionth of a dollar; names of budget periods
    database     one SQL dialect over two drivers: SQLite (embedded) and PostgreSQL (several hosts)
    migrations   the numbered steps that build the schema
    accounts     API keys, groups of keys, rate limits
    budgets      the tree of budgets: reserve before a call, settle after it, release the rest
    log          decisions, attempts, feedback, sessions, generations, retention
    versions     which router serves, and the trial of a candidate beside it
    alerts       alerts and what they are raised from: drift by specialist, new ratings, budgets
    auctions     the ledger of a market
    maintenance  which worker processes are alive; periodic work that one of them does
    rollups      sums per minute and hour, updated with the log
    queries      queries of pages: sums over time, quantiles, filtered lists of decisions
    promises     whether what a goal promises holds on live requests
    explored     what requests cost that were asked for what they teach
    worker       asynchronous access: one thread per process that commits many operations together, and one
                 with a read-only connection
    loop_writer  short operations committed on the thread of an event loop, for SQLite
    pipeline     short operations of many requests in one transaction and few round trips, for PostgreSQL
    pipeline_writer  which of them are committed together, and over which connection
    export       traffic as Parquet, and traffic with feedback as a routing table

Every operation is a plain function of an open transaction, so several of them can be committed together.
"""
