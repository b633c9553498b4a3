"""Map a function over shards of work: in this process, over a pool of processes, over a Ray cluster.

    runner     the Runner interface, a runner within this process, and results of shards as bytes
    pool       several processes of this machine
    ray        several machines (extra `ray`, imported only there)

A shard is a small value that describes a piece of work; the function applied to it must return the same
result whenever it is called. This package does not depend on what shards contain.
"""

from pandora_router.run.pool import Pool
from pandora_router.run.runner import InPlace, Runner, ShardError, on_one_core

__all__ = ["InPlace", "Pool", "Runner", "ShardError", "on_one_core"]
