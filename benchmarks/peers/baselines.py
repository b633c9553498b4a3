"""Baselines of our own: rules of published routers written anew, and models of scikit-learn.

Each takes a task (`adapters/shared.py`) and returns a function from a row of the test prompts to the
number of a specialist. CARROT (Somerstep et al. 2025): predict score and fee of every model by nearest
neighbours, take the largest score - fee; k by cross-validated squared error. RouterBench (Hu et al.
2024): the same with 40 neighbours, or with a small neural network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Decide = Callable[[int], int]
KS = (5, 10, 25, 50, 100, 200, 400)


def neighbours(train: NDArray[Any], test: NDArray[Any], most: int) -> NDArray[np.intp]:
    """The `most` nearest training rows of each test row by cosine, nearest first."""
    near = test @ train.T
    some = np.argpartition(-near, min(most, near.shape[1] - 1), axis=1)[:, :most]
    order = np.argsort(-np.take_along_axis(near, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Rows of length one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def chosen_k(vectors: NDArray[Any], score: NDArray[Any]) -> int:
    """The number of neighbours of least squared error over five folds."""
    folds = np.random.default_rng(0).integers(0, 5, len(vectors))
    ks = [k for k in KS if k <= 0.7 * len(vectors)]
    errors = np.zeros(len(ks))
    for fold in range(5):
        inside, outside = vectors[folds != fold], vectors[folds == fold]
        near = neighbours(inside, outside, ks[-1])
        known = score[folds != fold][near]
        sums = np.cumsum(known, axis=1)
        for i, k in enumerate(ks):
            errors[i] += ((sums[:, k - 1] / k - score[folds == fold]) ** 2).sum()
    return ks[int(np.argmin(errors))]


def nearest(task: Any, k: int) -> Decide:
    """The largest mean score - mean fee over the k nearest training prompts."""
    train, test = unit(task.vectors), unit(task.test)
    return lambda row: int(np.argmax(task.net[neighbours(train, test[row : row + 1], k)[0]].mean(axis=0)))


def carrot(task: Any) -> Decide:
    """CARROT's kNN with k by cross-validation."""
    return nearest(task, chosen_k(unit(task.vectors), task.score))


def routerbench_knn(task: Any) -> Decide:
    """RouterBench's kNN with 40 neighbours."""
    return nearest(task, 40)


def regressed(task: Any, score: Any) -> Decide:
    """The largest predicted score - mean training fee; `score` is a fitted regressor of all scores."""
    fee = task.fee.mean(axis=0)
    return lambda row: int(np.argmax(score.predict(task.test[row : row + 1])[0] - fee))


def routerbench_mlp(task: Any) -> Decide:
    """RouterBench's neural network: one hidden layer of 100 units, as scikit-learn makes it."""
    from sklearn.neural_network import MLPRegressor

    model = MLPRegressor(hidden_layer_sizes=(100,), early_stopping=True, max_iter=60, random_state=0)
    return regressed(task, model.fit(task.vectors, task.score))


def sklearn_knn(task: Any) -> Decide:
    """scikit-learn's mean of 50 neighbours."""
    from sklearn.neighbors import KNeighborsRegressor

    model = KNeighborsRegressor(50, metric="cosine").fit(task.vectors, task.net)
    return lambda row: int(np.argmax(model.predict(task.test[row : row + 1])[0]))


def sklearn_ridge(task: Any) -> Decide:
    """scikit-learn's ridge regression, its penalty by leave-one-out error."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(alphas=np.geomspace(0.1, 1000.0, 9)).fit(task.vectors, task.net)
    return lambda row: int(np.argmax(model.predict(task.test[row : row + 1])[0]))


def sklearn_label(task: Any) -> Decide:
    """A classifier of "which specialist is best": scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    label = np.argmax(task.net, axis=1)
    if len(np.unique(label)) == 1:
        return lambda row: int(label[0])
    model = LogisticRegression(max_iter=1000).fit(task.vectors, label)
    return lambda row: int(model.predict(task.test[row : row + 1])[0])


def best_single(task: Any) -> Decide:
    """The specialist of the highest mean score - fee in training, always."""
    best = int(np.argmax(task.net.mean(axis=0)))
    return lambda row: best


BASELINES: dict[str, Callable[[Any], Decide]] = {
    "CARROT kNN, k by cross-validation": carrot,
    "RouterBench kNN-40": routerbench_knn,
    "RouterBench MLP": routerbench_mlp,
    "scikit-learn kNN-50": sklearn_knn,
    "scikit-learn ridge": sklearn_ridge,
    "scikit-learn logistic, best label": sklearn_label,
    "best single": best_single,
}
