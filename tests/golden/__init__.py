"""What every agent trains to from a fixed seed, so that a change of bits is never an accident."""
