"""Measurements printed by `make bench`; not installed."""
