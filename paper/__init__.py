"""Reproduction of the paper: experiments, findings, its own curves and tables; not installed."""
