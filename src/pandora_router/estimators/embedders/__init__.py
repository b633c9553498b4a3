"""Texts to vectors: what every embedder promises, the offline default, and others beside it."""
