"""The algorithms: what each learns from a rollout, as functions of a training state."""
