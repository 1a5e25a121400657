"""The engine of the deep agents: networks and updates in JAX, acting in NumPy."""

from .runtime import configure

configure()
