"""Map a function over shards of work: in this process, over a pool of processes, over a Ray cluster.

    runner     what every runner promises, and the one that stays in this process
    outcomes   what came of a shard, as bytes that always reach the caller
    pool       several processes of this machine
    ray        several machines (extra `ray`, imported only there)

A shard is a small value that says what to do; the function of a shard returns the same result whoever calls
it, and however often. This package does not know what the shards are about.
"""

from pandora_router.run.pool import Pool
from pandora_router.run.runner import InPlace, Runner, ShardError, on_one_core

__all__ = ["InPlace", "Pool", "Runner", "ShardError", "on_one_core"]
