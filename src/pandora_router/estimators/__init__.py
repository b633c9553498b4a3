"""What predicts a reward: embedders, neighbours, boosted stacks, judges, transformers."""
