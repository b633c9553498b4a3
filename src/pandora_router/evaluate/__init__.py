"""Evaluation: what each way of routing loses, and whether differences are significant.

    experiments   the settings of an experiment; `config` reads them from YAML
    estimates     its routing table; F, G and R of one fresh split by the router's recipes, cached
    trials        one split as input of the arms, with estimates from everything opened
    arms          every way of routing, and variations of the router
    outcomes      every arm at every inspection cost: losses and savings as sums that can be added
    stream        the same over Parquet files that need not fit in memory
    campaign      experiments over seeds, resumable
    results       Parquet on disk, compared prompt by prompt
    reliability   errors, coverage and reliability of estimates
    flips         who gets the same question in other words, and what a change costs
    statistics    paired, clustered and replicated comparisons
    bids          the same tables as markets: posted prices and mechanisms

`report` shows results. This module imports nothing; import from the modules above.
"""
