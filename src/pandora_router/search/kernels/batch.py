"""Whole searches over many queries: conditioning, charging and choosing in compiled loops.

Each function takes a slice of queries and writes, per query, the choice, the bill and the openings in order.
They mirror `search.policies` and `search.gradient` driven by `search.drive`; that they agree action for
action is a test. `law` groups the arguments that say what is known:
(mean, std, correlation, own, shared, group, quantiles, rank, outside, refund).
"""

from __future__ import annotations

import math

import numpy as np

from pandora_router.search.kernels.gradient import gradient_step
from pandora_router.search.kernels.payoffs import committing_payoffs
from pandora_router.search.kernels.special import NOTHING, first_highest, jit, margin, offset


@jit
def begin(law, i, mean, covariance, std, cost, sealed, left):  # type: ignore[no-untyped-def]
    """Set up the state of query i; `covariance` stays unset for independent boxes."""
    means, stds, correlation, own, shared, group = law[0], law[1], law[2], law[3], law[4], law[5]
    boxes = len(mean)
    left[:] = shared
    for k in range(boxes):
        mean[k] = means[i, k]
        std[k] = stds[i, k]
        sealed[k] = True
        if correlation.shape[0] > 0:
            for l in range(boxes):
                covariance[k, l] = stds[i, k] * stds[i, l] * correlation[k, l]
    price_costs(own, left, group, cost)


@jit
def price_costs(own, left, group, cost):  # type: ignore[no-untyped-def]
    """Marginal cost of every box in the present state."""
    for k in range(len(own)):
        cost[k] = own[k]
        if len(left) > 0 and group[k] >= 0:
            cost[k] = own[k] + left[group[k]]


@jit
def buy(law, i, box, value, mean, covariance, std, cost, sealed, left):  # type: ignore[no-untyped-def]
    """Open one box: condition everything on its value, settle its group, return what it cost."""
    stds, correlation, own, group, refund = law[1], law[2], law[3], law[5], law[9]
    boxes = len(mean)
    paid = cost[box]
    if correlation.shape[0] > 0 and covariance[box, box] > NOTHING * (stds[i, box] * stds[i, box]):
        pivot = covariance[box, box]
        step = value - mean[box]
        column = covariance[:, box].copy()
        column[box] = 0.0  # the row and the column of the box are cleared below
        for k in range(boxes):
            ratio = column[k] / pivot
            mean[k] = mean[k] + ratio * step
            for l in range(boxes):
                covariance[k, l] = covariance[k, l] - ratio * column[l]
        for k in range(boxes):
            covariance[k, box] = 0.0
            covariance[box, k] = 0.0
        for k in range(boxes):
            live = covariance[k, k] > NOTHING * (stds[i, k] * stds[i, k])
            std[k] = math.sqrt(covariance[k, k]) if live else 0.0
    mean[box] = value + refund[box]
    std[box] = 0.0
    sealed[box] = False
    if len(left) > 0 and group[box] >= 0:
        left[group[box]] = 0.0
        price_costs(own, left, group, cost)
    return paid


@jit
def purchase(law, i, box, values, step, count, order, stage, mean, covariance, std, cost, sealed, left):  # type: ignore[no-untyped-def]
    """Open `box` and the boxes of its unpaid group that are free then; return (what it cost, openings)."""
    own, group = law[3], law[5]
    unpaid = len(left) > 0 and group[box] >= 0 and left[group[box]] > 0.0
    bill = 0.0
    for k in range(len(own)):
        free = unpaid and group[k] == group[box] and sealed[k] and own[k] == 0.0
        if k == box or free:
            bill += buy(law, i, k, values[i, k], mean, covariance, std, cost, sealed, left)
            order[i, count], stage[i, count] = k, step
            count += 1
    return bill, count


@jit
def in_hand(mean, sealed, outside):  # type: ignore[no-untyped-def]
    """The best of the outside option and the boxes with nothing left to open."""
    box, value = -1, outside
    for k in range(len(mean)):
        if not sealed[k] and mean[k] > value:
            box, value = k, mean[k]
    return box, value


@jit
def climb(mean, price, sealed, best, held, at):  # type: ignore[no-untyped-def]
    """The sealed box to open next besides `held`, or -1 to stop."""
    highest = -np.inf
    for k in range(len(mean)):
        if sealed[k] and k != held:
            highest = max(highest, price[k])
    equal = margin(mean)
    if max(best, at) < highest - equal:
        for k in range(len(mean)):
            if sealed[k] and k != held and price[k] >= highest - equal:
                return k
    return -1


@jit
def scratch(boxes, groups, dense):  # type: ignore[no-untyped-def]
    """Arrays for one query's state: mean, covariance, std, cost, sealed, shared costs left."""
    side = boxes if dense else 0
    return (
        np.empty(boxes),
        np.empty((side, side)),
        np.empty(boxes),
        np.empty(boxes),
        np.empty(boxes, dtype=np.bool_),
        np.empty(groups),
    )


@jit
def held_rows(law, values, held, at, lo, hi, choice, spent, order, stage):  # type: ignore[no-untyped-def]
    """Search obligatorily around box held[i] at option at[i] (-1: hold nobody)."""
    outside, refund = law[8], law[9]
    boxes = values.shape[1]
    mean, covariance, std, cost, sealed, left = scratch(boxes, len(law[4]), law[2].shape[0] > 0)
    price = np.empty(boxes)
    for i in range(lo, hi):
        begin(law, i, mean, covariance, std, cost, sealed, left)
        step, count, bill = np.int64(0), np.int64(0), 0.0
        while True:
            box, best = in_hand(mean, sealed, outside)
            for k in range(boxes):
                price[k] = mean[k] + (refund[k] + offset(std[k], cost[k]) if sealed[k] else 0.0)
            back, option = held[i], at[i]
            if back >= 0 and not sealed[back]:  # opened with its group: a value in hand like any other
                back, option = -1, -np.inf
            top = climb(mean, price, sealed, best, back, option)
            if top < 0:
                choice[i] = back if back >= 0 and best <= option else box
                break
            paid, count = purchase(
                law, i, top, values, step, count, order, stage, mean, covariance, std, cost, sealed, left
            )
            bill += paid
            step += 1
        spent[i] = bill


@jit
def best_holdout(mean, std, cost, refund, sealed, best, by_mean, price, option, payoffs):  # type: ignore[no-untyped-def]
    """The holdout of highest exact payoff (-1: nobody), with prices and outside options filled in."""
    for k in range(len(mean)):
        price[k] = mean[k] + (refund[k] + offset(std[k], cost[k]) if sealed[k] else 0.0)
        option[k] = mean[k]
        if not by_mean and refund[k] == 0.0:
            option[k] = 2.0 * mean[k] - price[k]  # to the bit as `outside_options`
        elif not by_mean and sealed[k]:
            option[k] = mean[k] + (refund[k] - offset(std[k], cost[k] - refund[k]))
    committing_payoffs(mean, std, refund, price, option, sealed, best, payoffs)
    return first_highest(payoffs, margin(mean)) - 1


@jit
def exact_holdouts(law, by_mean, lo, hi, held, at):  # type: ignore[no-untyped-def]
    """Choose the best committing policy of each query by exact payoffs."""
    boxes = law[0].shape[1]
    mean, covariance, std, cost, sealed, left = scratch(boxes, len(law[4]), law[2].shape[0] > 0)
    price, option, payoffs = np.empty(boxes), np.empty(boxes), np.empty(boxes + 1)
    for i in range(lo, hi):
        begin(law, i, mean, covariance, std, cost, sealed, left)
        held[i] = best_holdout(mean, std, cost, law[9], sealed, law[8], by_mean, price, option, payoffs)
        at[i] = option[held[i]] if held[i] >= 0 else -np.inf


@jit
def rollout_step(mean, std, cost, refund, sealed, best, by_mean):  # type: ignore[no-untyped-def]
    """One step of the rollout: (box to open or -1 to stop, held box or -1, its outside option)."""
    boxes = len(mean)
    price, option, payoffs = np.empty(boxes), np.empty(boxes), np.empty(boxes + 1)
    held = best_holdout(mean, std, cost, refund, sealed, best, by_mean, price, option, payoffs)
    at = option[held] if held >= 0 else -np.inf
    return climb(mean, price, sealed, best, held, at), held, at


@jit
def rollout_rows(law, values, by_mean, lo, hi, choice, spent, order, stage):  # type: ignore[no-untyped-def]
    """After every opening take the first step of the best committing policy."""
    outside = law[8]
    boxes = values.shape[1]
    mean, covariance, std, cost, sealed, left = scratch(boxes, len(law[4]), law[2].shape[0] > 0)
    for i in range(lo, hi):
        begin(law, i, mean, covariance, std, cost, sealed, left)
        step, count, bill = np.int64(0), np.int64(0), 0.0
        while True:
            box, best = in_hand(mean, sealed, outside)
            if not sealed.any():
                choice[i] = box
                break
            top, held, at = rollout_step(mean, std, cost, law[9], sealed, best, by_mean)
            if top < 0:
                choice[i] = held if held >= 0 and best <= at else box
                break
            paid, count = purchase(
                law, i, top, values, step, count, order, stage, mean, covariance, std, cost, sealed, left
            )
            bill += paid
            step += 1
        spent[i] = bill


@jit
def gradient_rows(law, values, depth, width, normals, lo, hi, choice, spent, order, stage):  # type: ignore[no-untyped-def]
    """Make the purchase whose news is worth most net of cost while that is positive; take the argmax."""
    own, group, quantiles, rank, outside = law[3], law[5], law[6], law[7], law[8]
    boxes = values.shape[1]
    mean, covariance, std, cost, sealed, left = scratch(boxes, len(law[4]), law[2].shape[0] > 0)
    table = np.empty((boxes if quantiles.shape[0] > 0 else 0, quantiles.shape[1]))
    for i in range(lo, hi):
        begin(law, i, mean, covariance, std, cost, sealed, left)
        for k in range(table.shape[0]):
            table[k] = quantiles[rank[i, k]]
        step, count, bill = np.int64(0), np.int64(0), 0.0
        while True:
            top, whole = gradient_step(
                mean,
                covariance,
                std,
                cost,
                own,
                left,
                group,
                law[9],
                sealed,
                table,
                outside,
                depth,
                width,
                normals,
            )
            if top < 0 and whole < 0:
                box = first_highest(mean, margin(mean))
                choice[i] = box if mean[box] > outside else -1
                break
            if whole >= 0:
                for k in range(boxes):
                    if group[k] == whole and sealed[k]:
                        bill += buy(law, i, k, values[i, k], mean, covariance, std, cost, sealed, left)
                        order[i, count], stage[i, count] = k, step
                        count += 1
            else:
                paid, count = purchase(
                    law, i, top, values, step, count, order, stage, mean, covariance, std, cost, sealed, left
                )
                bill += paid
            step += 1
        spent[i] = bill
