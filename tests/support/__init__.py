"""What tests build and run: one way for each thing.

tables      a small generated routing table
routers     fitted routers, each fitted once per session (also the fixtures `router` and `saved_router`)
command     the command `pandora`, in this process or in one of its own
instances   boxes of every kind, as numbers that can be shifted, scaled and permuted
"""
