"""What each way of routing loses and whether the difference is real: outcomes, sweeps, statistics, reports.

    instances, estimates      F, G and R of one fresh split, kept by content
    outcomes                  what was lost and saved, addable
    arms, sweep               every way of routing at every inspection cost
    statistics                paired, clustered, replicated
    experiments, campaign     an experiment from YAML, run over seeds, resumable
    results, tables           Parquet, Markdown
    bidding, bidding_report   the same tables as markets: posted prices and mechanisms, and their page
    plots, report, page       figures (matplotlib, only there), the Markdown report, the page to explore

This module imports nothing; take what you need from the one that has it.
"""
