"""What each way of routing loses and whether the difference is real: outcomes, sweeps, statistics, reports.

    experiments, readers      an experiment from YAML, every key checked
    domains, estimates        its routing table; F, G and R of one fresh split, kept by content
    instances, outcomes       what an arm sees; what was lost and saved, addable
    arms, variants, sweep     every way of routing, and variations of the router, at every inspection cost
    stream, chunks, exact     the same over Parquet longer than memory, with sums that do not round
    campaign, results         run over seeds, resumable; Parquet
    checks, money             errors, coverage and reliability of estimates; USD from token prices
    statistics, paired        paired, clustered, replicated
    verdicts, findings        against every static arm; where the paper's findings hold, in words
    tables, theirs            Markdown tables, ours and the paper's
    plots, curves             figures (matplotlib, only in the first)
    report, page              Markdown; one HTML page with curves to explore
    bidding, bidding_report   the same tables as markets: posted prices and mechanisms, and their page

This module imports nothing; take what you need from the one that has it.
"""
