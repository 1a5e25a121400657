"""Segment mode: how a promise is kept about environments whose state can't be captured.

Training is cut into segments at its checkpoints. At the start of each the environment is seeded
from (seed, number of the segment) and reset, in every run that checkpoints, whether it was ever
interrupted or not. So what follows a checkpoint depends on the checkpoint alone.
"""

import secrets

import numpy as np

_STREAM = 0x7365676D


def segment_seed(root: int, segment: int) -> int:
    """The seed of the environment in a segment; far from any that people train with."""
    stream = np.random.SeedSequence([root, _STREAM, segment])
    return int(stream.generate_state(1)[0] >> 1)  # vector environments count on from it


def fresh_root(seed: int | None) -> int:
    """Where the seeds of segments come from: the seed, or chance if there is none."""
    return secrets.randbits(63) if seed is None else seed
