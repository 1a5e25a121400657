"""What is kept on disk: bundles that run no code, checkpoints that survive a kill, locks."""
