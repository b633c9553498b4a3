"""What predicts a reward, from cheap to costly.

    embedders, tfidf, minilm, joined, endpoint   texts to unit vectors; `cache` keeps them on disk
    nearest, neighbours                          f: mean reward of the k nearest training prompts
    surface, heads, evidence, boosted            the default g: a boosted stack, no torch
    peek, agreement                              the same g, looking at what specialists have begun to say
    transformer, served                          the paper's g: fine-tuned with torch, served by ONNX Runtime
    extended                                     one more specialist from a few dozen scored prompts
    estimator                                    the async edge, any callable, a remote judge
    saved, ensemble                              to disk and back, never with pickle

Fitted estimators work on arrays: prompts, reward (N, M) with NaN for missing cells, contexts (N, M) of str or
None. This module imports nothing; take what you need from the one that has it.
"""
