"""What each way of routing loses and whether the difference is real: outcomes, sweeps, statistics.

    experiments   what an experiment is; `config` reads it from YAML
    estimates     its routing table; F, G and R of one fresh split by the router's recipes, cached
    trials        one split as an arm sees it
    arms          every way of routing, and variations of the router
    sweep         every arm at every inspection cost on one trial
    outcomes      what was lost and saved, addable, with sums that do not round
    stream        the same over Parquet longer than memory
    campaign      experiments over seeds, resumable
    results       Parquet on disk, compared prompt by prompt
    checks        errors, coverage and reliability of estimates
    statistics    paired, clustered, replicated
    money         USD from token prices
    bidding       the same tables as markets: posted prices and mechanisms

`report` shows results. This module imports nothing; take what you need from the one that has it.
"""
