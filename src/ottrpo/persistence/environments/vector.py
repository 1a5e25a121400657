"""The state of an SB3 vector environment: its own wrappers, and every environment in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper

from ottrpo.persistence.values import Arrays, decode, encode

from . import proof
from .capturable import Capturable
from .layers import (
    capture_layer,
    capture_layers,
    class_name,
    first_of,
    keeps_itself,
    restore_each,
    restore_layer,
    restore_layers,
    try_layer,
)

# wrappers of which all state stands in their attributes
KNOWN = ("stable_baselines3.common.vec_env.", "ottrpo.")
NAME = "environment"  # what the names of all their arrays begin with


@final
@dataclass(frozen=True)
class VectorWorld:
    """Vector environments of SB3, as agents train in them."""

    env: VecEnv

    def why_not_exact(self) -> str | None:
        """Why it can't be relied on to go on exactly; ``None`` if its environments did in a trial.

        It need not have been reset, and is not touched.
        """
        wrappers, base = _unwrapped(self.env)
        reasons = [_captured(wrapper, {}, "wrapper")[1] for wrapper in wrappers]
        return first_of((*reasons, _why_not_inside(base)))

    def capture(self, arrays: Arrays) -> tuple[dict[str, Any], str | None]:
        """The state as JSON, its arrays in ``arrays``, and why it is not whole, if so.

        What can't be captured is left out: whoever goes on from there must seed and reset first.
        """
        wrappers, base = _unwrapped(self.env)
        around = [_captured(one, arrays, f"{NAME}.wrapper{i}") for i, one in enumerate(wrappers)]
        inside, reason = _capture_base(base, arrays)
        states = [state for state, _ in around]
        data = {"wrappers": states, "base": class_name(base), "environments": inside}
        return data, first_of((*(why for _, why in around), reason))

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Put the environments, which have been reset, into the state that was captured.

        Raises:
            ValueError: if they are made of other parts.
        """
        wrappers, base = _unwrapped(self.env)
        inside = {"class": state["base"], "state": None}  # its own comes after
        restore_each([*wrappers, base], [*state["wrappers"], inside], arrays)
        _restore_base(base, state["environments"], arrays)

    def reseed(self, seed: int) -> Any:
        """Seed and reset the environments; what is seen first."""
        self.env.seed(seed)
        return self.env.reset()


def _why_not_inside(base: VecEnv) -> str | None:
    if keeps_itself(base):
        return None
    if isinstance(base, DummyVecEnv):
        each = {tuple(map(class_name, proof.layers(env))): env for env in base.envs}
        return first_of(proof.why_not_exact(env) for env in each.values())
    reason: str | None = _why_not_remote(base) or base.env_method("why_not_exact", indices=0)[0]
    return reason


def _why_not_remote(base: VecEnv) -> str | None:
    if type(base) is not SubprocVecEnv:
        return f"{type(base).__name__} is none of the vector environments that are known"
    # the outermost wrapper: it captures what is inside of it only
    if set(_outermost(base)) != {Capturable.__name__}:
        return "environments in other processes need the wrapper Capturable around each"
    return None


def _unwrapped(env: VecEnv) -> tuple[list[VecEnvWrapper], VecEnv]:
    wrappers = []
    while isinstance(env, VecEnvWrapper):
        wrappers.append(env)
        env = env.venv
    return wrappers, env


def _captured(layer: Any, arrays: Arrays, name: str) -> tuple[dict[str, Any], str | None]:
    if keeps_itself(layer) or class_name(layer).startswith(KNOWN):
        return try_layer(layer, arrays, name)
    reason = f"{type(layer).__name__} is none of the vector wrappers that are known"
    return {"class": class_name(layer), "state": None}, reason


def _capture_base(base: VecEnv, arrays: Arrays) -> tuple[list[Any], str | None]:
    if keeps_itself(base):
        return [capture_layer(base, arrays, NAME)], None
    if isinstance(base, DummyVecEnv):
        both = [capture_layers(env, arrays, f"{NAME}.{i}") for i, env in enumerate(base.envs)]
        return [states for states, _ in both], first_of(why for _, why in both)
    # ask first: a worker that raises is a worker that is gone
    reason = _why_not_remote(base) or first_of(base.env_method("why_not_captured"))
    if reason is not None:
        return [], reason
    states = base.env_method("capture_state")
    return [encode(state, arrays, f"{NAME}.{i}") for i, state in enumerate(states)], None


def _outermost(base: VecEnv) -> list[str]:
    return base.env_method("class_name") if base.has_attr("class_name") else []


def _restore_base(base: VecEnv, states: list[Any], arrays: Mapping[str, Any]) -> None:
    if keeps_itself(base):
        restore_layer(base, states[0], arrays)
        return
    if states and len(states) != base.num_envs:
        raise ValueError(
            f"there are {base.num_envs} environments, the saved ones are {len(states)}"
        )
    for i, state in enumerate(states):
        if isinstance(base, DummyVecEnv):
            restore_layers(base.envs[i], state, arrays)
        else:
            base.env_method("restore_state", decode(state, arrays), indices=i)
