"""Contact forces on the bodies, in time for a batch to copy them out.

Gymnasium calls `mj_rnePostConstraint` after each step, which turns the forces of the solver into
forces on bodies (`cacc`, `cfrc_int`, `cfrc_ext`); `mj_step` does so only for the sensors that need
it, and never after the last stage of a Runge-Kutta step. A batch runs nothing of its caller's
between the steps of its simulations, but MuJoCo calls the plugins of a model at the end of every
`mj_step`. So the model gets a plugin that does this one thing.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import mujoco

FORCE_FIELDS = frozenset({"cacc", "cfrc_int", "cfrc_ext"})
NAME = "ottrpo.forces"
_PASSIVE = 1 << 2  # mjPLUGIN_PASSIVE: every plugin must be something, and this adds no force
_CALLBACKS = ("nstate", "nsensordata", "init", "destroy", "copy", "reset", "compute", "advance")
_UNUSED = 7  # visualize, actuator_act_dot, and five for signed distance fields


class _Plugin(ctypes.Structure):
    """`mjpPlugin`, as mjplugin.h has it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("nattribute", ctypes.c_int),
        ("attributes", ctypes.c_void_p),
        ("capabilityflags", ctypes.c_int),
        ("needstage", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _CALLBACKS),
        ("unused", ctypes.c_void_p * _UNUSED),
    )


def with_forces(spec: Any) -> Any:
    """The model of ``spec``, which computes the forces on its bodies at the end of each step."""
    _register()
    spec.activate_plugin(NAME)
    spec.add_plugin(name=NAME, plugin_name=NAME, active=True)
    return spec.compile()


@cache
def _register() -> tuple[_Plugin, Any]:
    """Make the plugin known to MuJoCo, once; what it points to must live as long as the process."""
    from numba import cfunc  # takes a while to load, and few tasks need it

    folder = Path(mujoco.__file__).parent
    found = [*folder.glob("libmujoco*"), *folder.glob("mujoco.dll")]
    library = ctypes.CDLL(str(found[0]))
    plugin = _Plugin()
    library.mjp_defaultPlugin(ctypes.byref(plugin))
    plugin.name = NAME.encode()
    plugin.capabilityflags = _PASSIVE
    # compiled, as threads call it that hold no lock of Python's; it is passed more arguments than
    # it looks at, which every platform's calls permit
    nothing = cfunc("int32()")(lambda: 0)
    for name in ("nstate", "init", "reset", "compute"):
        setattr(plugin, name, nothing.address)
    plugin.advance = ctypes.cast(library.mj_rnePostConstraint, ctypes.c_void_p)
    library.mjp_registerPlugin(ctypes.byref(plugin))
    return plugin, nothing
