"""Where experience comes from: environments on the host, and environments inside JAX."""
