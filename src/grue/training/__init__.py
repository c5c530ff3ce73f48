"""Training: the loop, run folders, checkpoints and metrics."""
