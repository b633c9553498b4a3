"""The default costly estimate g: gradient-boosted trees over features and simpler predictions. No torch.

    boosted    the estimator: its fit and its predictions
    ensemble   trees as arrays, and how LightGBM grows them
    features   features of a text and of a prompt
    peek       features of the beginnings of answers
    agreement  whether beginnings of different specialists agree

This module imports nothing; import from the modules above.
"""
