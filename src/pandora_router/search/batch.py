"""The same policies over many queries at once, in compiled loops on all cores.

A `Batch` holds N queries as arrays with one correlation matrix between specialists; row i is exactly the
`State` that `Batch.state(i)` returns, and running a policy over the batch takes, action for action, the
decisions of `drive`. Policies or costs without a compiled loop are driven row by row. `stream` runs chunk
after chunk, so a million queries never have to be in memory together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.boxes import Costs, Independent, Joint
from pandora_router.boxes.base import discrete_backup_price, discrete_reservation_price
from pandora_router.boxes.checks import covariance_matrix, finite, locked, whole
from pandora_router.boxes.costs import as_costs
from pandora_router.boxes.joint import checked_quantiles
from pandora_router.errors import UsageError
from pandora_router.index import price_offset
from pandora_router.search import kernels
from pandora_router.search.drive import drive, reveal
from pandora_router.search.gradient import KnowledgeGradient
from pandora_router.search.payoffs import outside_options
from pandora_router.search.payoffs import stream as normal_stream
from pandora_router.search.policies import NOBODY, Committing, Held, Obligatory, Rollout, best_plan
from pandora_router.search.state import Action, Inspect, Policy, Select, State, Trace
from pandora_router.types import Matrix, Positions, Progress, Vector

SLICE = 256  # queries a thread takes at a time
FEWEST = 64  # queries for which another thread is worth its start
LONG = 256  # queries for which compiling takes less time than deciding in plain code
LEAST, MOST = 1e-140, 1e140  # standard deviations whose products with each other are ordinary numbers
_most: ContextVar[int | None] = ContextVar("most threads", default=None)


@dataclass(frozen=True, eq=False)
class Batch:
    """N queries over M boxes: mean and std (N, M), one correlation (M, M) or none, costs per box.

    `quantiles` (L, Q) are residual laws and `rank` (N, M) says which one each box of each query follows.
    """

    mean: Matrix
    std: Matrix
    costs: Costs
    correlation: Matrix | None = None
    quantiles: Matrix | None = None
    rank: Positions | None = None
    outside: float = -np.inf

    def __init__(
        self,
        mean: ArrayLike,
        std: ArrayLike,
        inspection_cost: ArrayLike | Costs,
        *,
        correlation: ArrayLike | None = None,
        quantiles: ArrayLike | None = None,
        rank: ArrayLike | None = None,
        outside: float = -np.inf,
    ) -> None:
        means, stds = finite("mean", mean, ndim=2), finite("std", std, ndim=2)
        if means.shape != stds.shape or (stds < 0.0).any():
            raise UsageError(
                "std",
                expected=f"shape {means.shape} with no entry below 0",
                came=f"shape {stds.shape}, smallest entry {stds.min():.3g}",
                do="Give one standard deviation per query and box.",
            )
        boxes = means.shape[1]
        if (quantiles is None) != (rank is None):
            raise UsageError(
                "quantiles", expected="quantiles and rank together", came="only one of them", do="Give both."
            )
        ranks = None if rank is None else whole("rank", rank, ndim=2)
        laws = None if quantiles is None else finite("quantiles", quantiles, ndim=2)
        laws = None if laws is None else checked_quantiles(laws, len(laws))
        if laws is not None and ranks is not None:
            fits = ranks.shape == means.shape and ranks.min() >= 0 and ranks.max() < len(laws)
            if correlation is None or not fits:
                raise UsageError(
                    "rank",
                    expected=f"shape {means.shape} with row numbers of quantiles, and a correlation",
                    came=f"shape {ranks.shape}, correlation {'missing' if correlation is None else 'given'}",
                    do="Number the residual laws from 0; without correlation use Draws.",
                )
        links = None if correlation is None else covariance_matrix("correlation", correlation, boxes)
        if links is not None and np.abs(np.diag(links) - 1.0).max() > 1e-9:
            raise UsageError(
                "correlation",
                expected="ones on the diagonal",
                came=f"{np.diag(links).tolist()}",
                do="Move the scale into std: C / sqrt(diag) / sqrt(diag).",
            )
        if links is not None and not (((stds > LEAST) & (stds < MOST)) | (stds == 0.0)).all():
            raise UsageError(
                "std",
                expected=f"0, or numbers from {LEAST:g} to {MOST:g}, beside a correlation",
                came=f"numbers from {stds.min():.3g} to {stds.max():.3g}",
                do="Change the unit of the rewards: a covariance of these cannot be written down.",
            )
        if links is not None:
            links = locked(np.where(np.eye(boxes, dtype=np.bool_), 1.0, links))  # away with the last rounding
        fields = {
            "mean": means,
            "std": stds,
            "costs": as_costs(inspection_cost, boxes),
            "correlation": links,
            "quantiles": laws,
            "rank": ranks,
            "outside": float(outside),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        State(Independent(means[0], stds[0], self.costs), self.outside)  # checks `outside`

    def __len__(self) -> int:
        return len(self.mean)

    def moved(self, by: Vector) -> Batch:
        """The same queries, each box worth `by` (M,) more whatever it shows."""
        return Batch(
            self.mean + by,
            self.std,
            self.costs,
            correlation=self.correlation,
            quantiles=self.quantiles,
            rank=self.rank,
            outside=self.outside,
        )

    def state(self, query: int) -> State:
        """The state in which the search of one query starts."""
        mean, std = self.mean[query], self.std[query]
        if self.correlation is None:
            return State(Independent(mean, std, self.costs), self.outside)
        covariance = std[:, None] * std * self.correlation
        laws = (
            self.quantiles[self.rank[query]] if self.quantiles is not None and self.rank is not None else None
        )
        return State(Joint(mean, covariance, self.costs, laws), self.outside)

    def prices(self) -> tuple[Matrix, Matrix]:
        """Reservation and backup prices of all boxes, nothing opened yet (N, M), (N, M)."""
        shape = self.mean.shape
        cost = np.broadcast_to(self.costs.marginal, shape)
        back = np.broadcast_to(self.costs.refund, shape)
        if self.quantiles is None or self.rank is None:
            above = self.mean + (back + price_offset(self.std, cost))
            return above, self.mean + (back - price_offset(self.std, cost - back))
        laws = self.quantiles[self.rank]
        worths = self.mean[..., None] + self.std[..., None] * laws + back[..., None]
        flat = worths.reshape(-1, laws.shape[-1])
        above = discrete_reservation_price(flat, cost.ravel())
        below = discrete_backup_price(flat, cost.ravel(), back.ravel())
        return above.reshape(shape), below.reshape(shape)

    def law(self) -> tuple[Any, ...]:
        """The arrays as the kernels take them; an empty array stands for an absent part."""
        none = locked(np.empty((0, 0)))
        no_rank = np.empty((0, 0), dtype=np.intp)
        no_rank.setflags(write=False)
        return (
            self.mean,
            self.std,
            none if self.correlation is None else self.correlation,
            self.costs.own,
            self.costs.shared,
            self.costs.group,
            none if self.quantiles is None else self.quantiles,
            no_rank if self.rank is None else self.rank,
            self.outside,
            self.costs.refund,
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """What happened to each query: the box taken, the bill, and the openings in order.

    `spent` is net of `refunded`, the part of the cost of the chosen box that came back.

    `order[i]` lists the boxes query i opened (-1 after the last), `stage[i]` the purchase each belongs to.
    """

    choice: NDArray[np.int32]
    spent: Vector
    refunded: Vector
    order: NDArray[np.int32]
    stage: NDArray[np.int32]

    @classmethod
    def empty(cls, queries: int, boxes: int) -> Decisions:
        """Nothing opened and nothing spent yet; `choice` is still to be filled."""
        choice = np.empty(queries, dtype=np.int32)
        order, stage = np.full((2, queries, boxes), -1, dtype=np.int32)
        return cls(choice, np.zeros(queries), np.zeros(queries), order, stage)

    @property
    def inspections(self) -> Positions:
        """How many boxes each query opened."""
        return (self.order >= 0).sum(axis=1)

    def record(self, query: int, trace: Trace) -> None:
        """Write what `drive` returned for one query: its openings, choice and bill."""
        count = 0
        for stage, action in enumerate(trace.actions[:-1]):
            assert isinstance(action, Inspect)
            for box in action.boxes:
                self.order[query, count], self.stage[query, count] = box, stage
                count += 1
        self.choice[query] = trace.selected
        self.spent[query], self.refunded[query] = trace.spent, trace.refunded

    def trace(self, query: int, values: Matrix) -> Trace:
        """One query's decisions as `drive` would have returned them."""
        opened = int((self.order[query] >= 0).sum())
        boxes, stages = self.order[query, :opened], self.stage[query, :opened]
        purchases = [
            tuple(int(b) for b in boxes[stages == s]) for s in range(int(stages.max(initial=-1)) + 1)
        ]
        shown = tuple(tuple(float(values[query, b]) for b in bought) for bought in purchases)
        actions: list[Action] = [Inspect(bought) for bought in purchases]
        actions.append(Select(int(self.choice[query])))
        return Trace(tuple(actions), shown, float(self.spent[query]), float(self.refunded[query]))


def run(
    policy: Policy,
    batch: Batch,
    values: ArrayLike,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Decisions:
    """Run `policy` over every query; `values` (N, M) is what opening each box would show.

    Where the kernels are not ready, fewer than 256 queries are driven in plain code; for more it pays to
    compile first, which takes tens of seconds: `progress` hears of it (see `kernels.warm`).
    """
    shown = finite("values", values, ndim=2)
    if shown.shape != batch.mean.shape:
        raise UsageError(
            "values", expected=f"shape {batch.mean.shape}", came=f"{shown.shape}", do="Align with the means."
        )
    kernel = kernels.ready()
    if kernel is None and len(shown) >= LONG and has_loop(policy, batch):
        kernels.warm(progress)
        kernel = kernels.ready()
    return run_with(kernel, policy, batch, shown, threads)


def run_with(
    kernel: SimpleNamespace | None, policy: Policy, batch: Batch, values: Matrix, threads: int | None = None
) -> Decisions:
    """`run` on checked values with these kernels, or without any."""
    queries = len(values)
    result = Decisions.empty(*values.shape)
    if kernel is None or not has_loop(policy, batch):
        _drive_rows(policy, batch, values, result)
    else:
        spread(_compiled(kernel, policy, batch, values, result), queries, threads)
    chosen = (result.order == result.choice[:, None]).any(axis=1) & (result.choice >= 0)
    result.refunded[chosen] = batch.costs.refund[result.choice[chosen]]
    result.spent[:] -= result.refunded
    return result


def stream(
    policy: Policy, chunks: Iterable[tuple[Batch, ArrayLike]], *, threads: int | None = None
) -> Iterator[Decisions]:
    """Run `policy` over (batch, values) chunks one after the other, holding one at a time."""
    for batch, values in chunks:
        yield run(policy, batch, values, threads=threads)


def spread(work: Callable[[int, int], None], queries: int, threads: int | None) -> None:
    """Call work(lo, hi) over slices of the queries on several threads; kernels release the lock."""
    threads = threads or _most.get() or os.cpu_count() or 1
    size = min(SLICE, max(FEWEST, -(-queries // threads)))
    slices = [(lo, min(lo + size, queries)) for lo in range(0, queries, size)]
    work(*slices[0])  # loads a kernel once, before threads could do so twice
    if len(slices) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda s: work(*s), slices[1:]))


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Batches run inside take so many threads where none are named: one process per core needs one each."""
    before = _most.set(threads)
    try:
        yield
    finally:
        _most.reset(before)


def has_loop(policy: Policy, batch: Batch) -> bool:
    """Whether there is a compiled loop for this policy over this batch; a subclass may decide otherwise."""
    if type(policy) is KnowledgeGradient:
        return not len(batch.costs.wait)
    if batch.quantiles is not None:
        return False
    if type(policy) is Committing:
        return not len(batch.costs.shared)
    return type(policy) in (Rollout, Obligatory, Held)


def _compiled(
    kernel: SimpleNamespace, policy: Policy, batch: Batch, values: Matrix, out: Decisions
) -> Callable[[int, int], None]:
    """The compiled loop for this policy over a slice of queries."""
    law = batch.law()
    written = (out.choice, out.spent, out.order, out.stage)
    if isinstance(policy, KnowledgeGradient):
        how = (policy.depth, policy.width, policy.normals(batch.costs))
        return lambda lo, hi: kernel.gradient_rows(law, values, *how, lo, hi, *written)
    if isinstance(policy, Rollout):
        by_mean = policy.outside == "mean"
        return lambda lo, hi: kernel.rollout_rows(law, values, by_mean, lo, hi, *written)
    held, at = np.full(len(batch), NOBODY, dtype=np.int64), np.full(len(batch), -np.inf)
    if isinstance(policy, Held):
        policy.check(batch.mean.shape[1])

    def commit(lo: int, hi: int) -> None:
        if isinstance(policy, Held):
            held[lo:hi], at[lo:hi] = policy.box, policy.at
        elif isinstance(policy, Committing) and policy.payoff == "exact":
            kernel.exact_holdouts(law, policy.outside == "mean", lo, hi, held, at)
        elif isinstance(policy, Committing):
            _simulate_holdouts(kernel, policy, batch, lo, hi, held, at)
        kernel.held_rows(law, values, held, at, lo, hi, *written)

    return commit


def _simulate_holdouts(
    kernel: SimpleNamespace,
    policy: Committing,
    batch: Batch,
    lo: int,
    hi: int,
    held: NDArray[np.int64],
    at: Vector,
) -> None:
    """Choose the committing policy of each query in a slice by simulation, as `Committing.start` does.

    Outcomes are drawn by the means, so queries with the same boxes choose the same and are simulated once.
    """
    boxes = batch.mean.shape[1]
    correlation = np.eye(boxes) if batch.correlation is None else batch.correlation
    sealed = np.ones(boxes, dtype=np.bool_)
    sealed.setflags(write=False)
    payoffs = np.empty(boxes + 1)
    before: dict[bytes, int] = {}
    for i in range(lo, hi):
        mean, std = batch.mean[i], batch.std[i]
        same = before.setdefault(mean.tobytes() + std.tobytes(), i)
        if same != i:
            held[i], at[i] = held[same], at[same]
            continue
        option = outside_options(Independent.known(mean, std, batch.costs, sealed), policy.outside)
        normals = normal_stream(mean, policy.seed).standard_normal((policy.samples, boxes))
        kernel.simulated_payoffs(
            mean,
            locked(std[:, None] * std * correlation),
            batch.costs.own,
            batch.costs.refund,
            sealed,
            option,
            batch.outside,
            normals,
            payoffs,
        )
        held[i] = best_plan(payoffs, mean)
        at[i] = option[held[i]] if held[i] != NOBODY else -np.inf


def _drive_rows(policy: Policy, batch: Batch, values: Matrix, out: Decisions) -> None:
    """Drive every query in turn: the way for policies that have no compiled loop."""
    for i in range(len(batch)):
        out.record(i, drive(policy, batch.state(i), reveal(values[i])))
        out.spent[i] += out.refunded[i]  # given back for all rows at once
