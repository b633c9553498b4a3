"""Estimators: predict the reward of each specialist for a prompt, from cheap to costly.

    embedders/                       texts to unit vectors, which `Cached` keeps on disk
    nearest, neighbours              the cheap estimate f: mean reward of the k nearest known prompts
    linear                           ridge regressions; a faster f on a few components of the embedding
    pooled                           f after a refit: neighbours and a linear model that reads single scores
    stack/                           the default costly estimate g: gradient-boosted trees, maybe with a peek
    transformer/                     the paper's g: fine-tuned with torch, served by ONNX Runtime
    set_layer, looking               estimates from the beginnings of answers, and how those are obtained
    judge, estimator                 a language model as judge; any callable; the protocols of estimators
    extended                         one more specialist from a few dozen scored prompts
    rewards                          checks of rewards and contexts
    states                           estimators on disk, without pickle

Fitted estimators work on arrays: prompts, reward (N, M) with NaN for missing cells, contexts (N, M) of str or
None. This module imports nothing; import from the modules above.
"""
