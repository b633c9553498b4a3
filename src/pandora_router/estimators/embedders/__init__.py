"""Embedders: texts to unit vectors. The `Embedder` protocol, the offline default, and alternatives."""
