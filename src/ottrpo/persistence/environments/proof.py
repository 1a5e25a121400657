"""Whether an environment goes on exactly from what is captured of it: found out by doing.

Nobody can tell from outside where an environment keeps its state: in attributes, or in a class, a
module, a space's generator, a library. So two copies are made. One plays; what is captured of it is
put into the other; then both play the same actions, and must see the same. The environment that is
trained in is not touched.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ottrpo.names import one_line
from ottrpo.persistence import strict_json
from ottrpo.persistence.strict_json import Arrays, global_randomness, set_global_randomness

from .layers import capture_layers, class_name, layers_of, restore_layers, restored_alike

STEPS = 60  # before what is captured, after it, and after another reset
SEED, OTHER_SEED = 20, 7
MOST_BYTES = 2**26  # of a state: every checkpoint holds it
MOST_DATA = 2**20
_REPEATED = "stable_baselines3.common.monitor.Monitor"  # keeps nothing that is ever seen


def why_not_exact(env: gym.Env[Any, Any]) -> str | None:
    """Why ``env`` can't be relied on to go on exactly; ``None`` if it did in a trial."""
    name, random = type(env.unwrapped).__name__, global_randomness()
    copies: list[Any] = []
    try:
        copies += [_fresh(env), _fresh(env)]
        return _tried(name, *copies)
    except Exception as error:  # an environment may raise anything
        return f"a copy of {name} to try it with failed: {one_line(error)}"
    finally:
        set_global_randomness(random)
        for one in copies:
            with suppress(Exception):
                one.close()


def _tried(name: str, first: Any, second: Any) -> str | None:
    actions = list(_actions(first))
    first.reset(seed=SEED)
    _played(first, actions[0])
    arrays: Arrays = {}
    states, reason = capture_layers(first, arrays, "trial")
    if reason is not None:
        return reason
    size = sum(array.nbytes for array in arrays.values())
    data = strict_json.dumps({"states": states})
    if size > MOST_BYTES or len(data) > MOST_DATA:
        return f"the state of {name} has {size + len(data):,} bytes"
    # as it comes back from a file, into one that was only reset, and into one with another past
    read: Any = strict_json.loads(data)
    second.reset(seed=OTHER_SEED)
    restore_layers(second, read["states"], arrays)
    _played(second, actions[1][: STEPS // 3])
    second.reset()
    restore_layers(second, read["states"], arrays)
    random = global_randomness()  # a checkpoint keeps it too
    expected = _played(first, actions[1]) + _played(first, actions[2], anew=True)
    set_global_randomness(random)
    seen = _played(second, actions[1]) + _played(second, actions[2], anew=True)
    for step, (was, now) in enumerate(zip(expected, seen, strict=False)):
        if not restored_alike(was, now):
            return f"{name} does not go on from what is captured of it: a trial differed at {step}"
    return None if len(expected) == len(seen) else f"{name} ends episodes otherwise in a trial"


def _played(env: Any, actions: Sequence[Any], *, anew: bool = False) -> list[Any]:
    """All that is seen in a few steps; episodes follow each other."""
    seen: list[Any] = [deepcopy(env.reset()[0])] if anew else []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(deepcopy((observation, reward, terminated, truncated)))
        if terminated or truncated:
            seen.append(deepcopy(env.reset()[0]))
    return seen


def _actions(env: Any) -> Iterator[list[Any]]:
    space = deepcopy(env.action_space)  # an environment may draw from its own
    space.seed(SEED)
    for _ in range(3):
        yield [space.sample() for _ in range(STEPS)]


def _fresh(env: Any) -> Any:
    """Another one: made anew if that gives the same layers, else a copy."""
    if env.spec is not None:
        with suppress(Exception):
            made = made_again(env.spec)
            if [*map(class_name, layers(made))] == [*map(class_name, layers(env))]:
                return made
    return deepcopy(env)


def layers(env: Any) -> Iterator[Any]:
    """All layers that matter, from the outside in."""
    return (one for one in layers_of(env, whole=True) if class_name(one) != _REPEATED)


def made_again(spec: EnvSpec, **keywords: Any) -> Any:
    """An environment by its specification; SB3's Monitor can't be made again, and is not needed."""
    spec = copy(spec)
    spec.additional_wrappers = tuple(
        wrapper for wrapper in spec.additional_wrappers if wrapper.name != "Monitor"
    )
    return gym.make(spec, disable_env_checker=True, **keywords)
