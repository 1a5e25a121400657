"""The state of a MuJoCo simulation.

Positions and velocities are not enough: the solver starts from where it ended (`qacc_warmstart`),
and rewards and observations read quantities that are computed from the state before it moved on.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ottrpo.persistence.values import Arrays

# What environments read after a step, computed during it.
DERIVED = (
    *(
        "xpos",
        "xquat",
        "xmat",
        "xipos",
        "ximat",
        "geom_xpos",
        "geom_xmat",
        "site_xpos",
        "site_xmat",
    ),
    *("subtree_com", "subtree_linvel", "subtree_angmom", "cinert", "cvel", "cacc"),
    *("cfrc_int", "cfrc_ext", "qacc", "qfrc_actuator", "actuator_force", "sensordata"),
)
INTEGRATION = "integration"


def is_data(value: Any) -> bool:
    """Whether ``value`` is a MuJoCo simulation."""
    mujoco = sys.modules.get("mujoco")  # if it was never loaded there can be none
    return mujoco is not None and isinstance(value, mujoco.MjData)


def capture(data: Any, arrays: Arrays, name: str) -> dict[str, str]:
    """Add the simulation's arrays to ``arrays``; the names under which they are there."""
    import mujoco

    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, whole))
    mujoco.mj_getState(data.model, data, state, whole)
    found = {INTEGRATION: state} | {key: getattr(data, key).copy() for key in DERIVED}
    arrays |= {f"{name}.{key}": array for key, array in found.items()}
    return {key: f"{name}.{key}" for key in found}


def restore(data: Any, names: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
    """Put the simulation into the state that was captured.

    Raises:
        ValueError: if the arrays are those of another model.
    """
    import mujoco

    if set(names) != {INTEGRATION, *DERIVED}:
        raise ValueError(f"the state of a simulation consists of {INTEGRATION}, {DERIVED}")
    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    shapes = {key: getattr(data, key).shape for key in DERIVED}
    shapes[INTEGRATION] = (mujoco.mj_stateSize(data.model, whole),)
    for key, shape in shapes.items():
        if arrays[names[key]].shape != shape:
            raise ValueError(
                f"the simulation's {key} has shape {arrays[names[key]].shape}, this model {shape}"
            )
    mujoco.mj_setState(data.model, data, arrays[names[INTEGRATION]].astype(np.float64), whole)
    for key in DERIVED:
        getattr(data, key)[...] = arrays[names[key]]
