"""A fine-tuned transformer as costly estimate: `trainer` needs torch, `served` needs only ONNX Runtime."""
