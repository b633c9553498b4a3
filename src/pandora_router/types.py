"""The words for arrays, callbacks and mechanisms that rooms share, each defined here and nowhere else.

N counts prompts (rows), M specialists or boxes (columns). Shapes are said where an array is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # (M,) or (N,)
Matrix = NDArray[np.float64]  # (N, M) or (M, M)
Mask = NDArray[np.bool_]  # which boxes, rows or cells
Positions = NDArray[np.intp]  # row, column or group numbers, counted from 0
Texts = NDArray[np.str_]  # (N,)
Contexts = NDArray[np.object_]  # (N, M): the beginning of each specialist's answer, None if unknown

Progress = Callable[[str, int, int], None]  # what is being done, steps done, steps in all
Advance = Callable[[str, float], None]  # what is being done, the share of it that is done (0 to 1)

MechanismName = Literal["sequential", "descending", "ascending", "second price", "leave one out"]

Until = Literal["last_byte", "first_token"]
"""What of an answer is waited for."""


def silent(*_: object) -> None:
    """Do nothing: the `Progress` or `Advance` of work that nobody watches."""
