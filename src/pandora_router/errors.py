"""The two ways something can go wrong outside a search.

    PandoraError
    |-- UsageError     yours: says what was expected, what came and what to do
    `-- UpstreamError  theirs: a specialist, an estimator or a store failed or sent an invalid reply

Inside a search a failure is data, not an exception (see `search.state`).
"""

from __future__ import annotations

from pandora_router.text import printable


class PandoraError(Exception):
    """The root of every error this package raises on purpose.

    Its text is safe to print: names and replies from outside that are quoted in it cannot control a terminal.
    """

    def __str__(self) -> str:
        """The message, with control characters written as escapes."""
        return printable(super().__str__())


class UsageError(PandoraError, ValueError):
    """Something the caller handed over is not what was expected."""

    def __init__(self, what: str, *, expected: str, came: str, do: str) -> None:
        self.what = what
        self.expected = expected
        self.came = came
        self.do = do
        super().__init__(f"{what}: expected {expected}, got {came}. {do}")

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the four parts when an error travels from a worker process."""
        return _again, (type(self), self.what, self.expected, self.came, self.do)


def missing_package(what: str, package: str, extra: str) -> UsageError:
    """Return the error for `what` needing `package`, which the extra `extra` of this project installs.

    >>> print(missing_package("plots", "matplotlib", "plots").do)
    In a clone of pandora-router, run: pip install '.[plots]'
    """
    return UsageError(what, expected=f"the package {package}", came="no such package", do=install(extra))


def install(extra: str) -> str:
    """Return the sentence that says how to install the extra `extra`; the package is on no registry yet."""
    return f"In a clone of pandora-router, run: pip install '.[{extra}]'"


def _again(kind: type[UsageError], what: str, expected: str, came: str, do: str) -> UsageError:
    return kind(what, expected=expected, came=came, do=do)


class UpstreamError(PandoraError):
    """A specialist, an estimator or a store outside this process failed."""


class BrokenContract(AssertionError):
    """A law of `pandora_router.testing` that an implementation does not keep."""
