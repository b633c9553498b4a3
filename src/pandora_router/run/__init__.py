"""Map a function over shards of work: in this process, over a pool of processes, over a Ray cluster.

    runner     what every runner promises, and the one that stays in this process
    pool       several processes of this machine
    ray        several machines (extra `ray`, imported only there)

A shard is a small value that says what to do; the function of a shard returns the same whoever calls it, and
how often. It refuses to know what the shards are about.
"""

from pandora_router.run.pool import Pool
from pandora_router.run.runner import InPlace, Runner, on_one_core

__all__ = ["InPlace", "Pool", "Runner", "on_one_core"]
