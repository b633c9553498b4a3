"""argrouter: half a logistic classifier per model, half a similarity-weighted vote of 50 neighbours.

The package has the inference only, so the classifiers are scikit-learn's logistic regressions on "score of at
least one half"; k and the weight of the vote are the package's defaults, and one USD of its costs is one unit
of score (lam = 1), because fees come in units of score.
"""

import numpy as np
from argrouter.router import Router
from shared import answer
from sklearn.linear_model import LogisticRegression


def fit(task):
    """One classifier per specialist; a specialist that is always right or always wrong gets a constant."""
    coefficients, intercepts = [], []
    for scores in task.score.T:
        label = scores >= 0.5
        if label.all() or not label.any():
            coefficients.append(np.zeros(task.vectors.shape[1]))
            intercepts.append(5.0 if label.all() else -5.0)
        else:
            model = LogisticRegression(max_iter=1000).fit(task.vectors, label)
            coefficients.append(model.coef_[0])
            intercepts.append(float(model.intercept_[0]))
    norms = np.linalg.norm(task.vectors, axis=1, keepdims=True)
    router = Router(
        models=task.specialists,
        coef=np.array(coefficients),
        intercept=np.array(intercepts),
        train_emb=task.vectors / np.maximum(norms, 1e-12),
        train_scores=task.score,
        train_costs=task.fee,
        lam=1.0,
    )
    return lambda row: router.route_embeddings(task.test[row])[0]


if __name__ == "__main__":
    answer(fit)
