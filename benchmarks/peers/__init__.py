"""Our router beside other routers, on the same tables: `python -m benchmarks.peers`."""
