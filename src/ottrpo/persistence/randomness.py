"""Random generators that belong to nobody: environments and wrappers may draw from them."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np


def global_randomness() -> dict[str, Any]:
    """The states of Python's generator and of NumPy's old one, as `values.encode` takes them."""
    return {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002


def set_global_randomness(states: Mapping[str, Any]) -> None:
    """Draw on from `global_randomness`."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
