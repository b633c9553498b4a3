"""Scripts that make parts of the package; not installed."""
