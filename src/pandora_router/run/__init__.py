"""Map a function over shards of work: in this process, over a pool of processes, over a Ray cluster.

    runner     the Runner interface, runners within this process and in several processes of this machine
    ray        several machines (extra `ray`, imported only there)

A shard is a small value that describes a piece of work; the function applied to it must return the same
result whenever it is called. This package does not depend on what shards contain.
"""

from pandora_router.run.runner import InPlace, Pool, Runner, ShardError, on_one_core

__all__ = ["InPlace", "Pool", "Runner", "ShardError", "on_one_core"]
