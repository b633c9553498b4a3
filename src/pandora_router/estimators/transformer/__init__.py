"""A fine-tuned transformer as costly estimate: `training` needs torch, `served` needs only ONNX Runtime."""
