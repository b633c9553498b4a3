"""One script per peer, run in the environment of that peer: `python SCRIPT.py TASK.npz CHOICES.npz`.

A script imports its peer and numpy, never this project. `shared.py` reads the task and writes the choices.
"""
