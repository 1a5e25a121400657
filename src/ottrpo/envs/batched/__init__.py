"""MuJoCo tasks, many simulations at once: what a task is, and those of Gymnasium."""
