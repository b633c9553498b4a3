"""A fine-tuned transformer as costly estimate: `training` needs torch, `served` only ONNX Runtime."""
