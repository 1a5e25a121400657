"""Trainings side by side in one compiled program, advanced a few updates at a time.

Between two stretches the host looks on: it writes down what was told, evaluates, and takes the
state to put it into a checkpoint. How long the stretches are changes no number.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ottrpo.collect.device import Loop
from ottrpo.core.checks import require
from ottrpo.engine.state import TrainState

from .training import Training

Array = Any
Told = dict[str, Array]  # what updates tell, [seeds, updates]
GIB = 2**30
SEEDS, ENVIRONMENTS = "seeds", "environments"
START, ADVANCE = "start", "advance"  # programs; those of evaluations are named by their shapes
# parts of JAX that have no types
PartitionSpec: Any = jax.sharding.PartitionSpec
ShapeDtypeStruct: Any = jax.ShapeDtypeStruct


@final
class Fleet:
    """The trainings of some seeds, on all devices that there are.

    Seeds are spread over the devices as far as they go, and the environments of each over the rest.

    Args:
        training: what each of them does.
        seeds: one for each.
        chunk: updates of a stretch, at most.
        devices: by default all that JAX sees.

    Raises:
        ValueError: if the environments can't be spread evenly.
    """

    def __init__(
        self,
        training: Training,
        seeds: Sequence[int],
        *,
        chunk: int = 1,
        devices: Sequence[Any] | None = None,
    ) -> None:
        self.training, self.seeds, self.chunk = training, tuple(seeds), chunk
        self._placed = _placed(len(self.seeds), training.loop.n_envs, devices or jax.devices())
        self._programs: dict[Any, Any] = {}
        self.loops: Any = None

    @property
    def rows(self) -> int:
        """Environment steps of one update of one training."""
        return self.training.loop.n_envs * self.training.loop.n_steps

    def compile(self, evaluation: tuple[int, int] | None = None) -> float:
        """Make the programs ready, side by side; the seconds that it took.

        Args:
            evaluation: how many ways to act and episodes evaluations will have, to make theirs
                ready too.
        """
        began = time.perf_counter()
        lowered: dict[Any, Any] = {
            START: self._lower_start(),
            ADVANCE: self._lower_advance(),
        }
        if evaluation is not None:
            lowered[evaluation] = self._lower_evaluation(*evaluation)
        with ThreadPoolExecutor(len(lowered)) as pool:
            compiled = pool.map(lambda each: each.compile(), lowered.values())
            self._programs |= zip(lowered, compiled, strict=True)
        return time.perf_counter() - began

    def begin(self) -> None:
        """All trainings at their first step."""
        self.loops = self._ready(START)(jnp.stack([jax.random.key(seed) for seed in self.seeds]))

    def needs(self) -> int:
        """Bytes that the program takes at most on each device."""
        told = self._ready(ADVANCE).memory_analysis()
        sizes = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return int(sum(getattr(told, size) for size in sizes) - told.alias_size_in_bytes)

    def require_room(self) -> str:
        """What of a device's memory the program takes, in words.

        Raises:
            ValueError: if it does not fit.
        """
        needed, room = self.needs(), memory_of(self._placed.mesh.devices.flat[0])
        told = f"{needed / GIB:.2f} of {room / GIB:.1f} GiB on each device"
        require(
            needed <= room,
            f"the training needs {told}; take fewer seeds side by side (--seeds), or fewer n_envs "
            "or n_steps, or a smaller batch_size (--set n_envs=... n_steps=...)",
        )
        return told

    def advance(self, updates: int) -> Told:
        """Go on by so many updates; what they told, on the host [seeds, updates]."""
        require(0 < updates <= self.chunk, f"a stretch has 1 to {self.chunk} updates")
        self.loops, told = self._ready(ADVANCE)(self.loops, jnp.int32(updates))
        return {name: np.asarray(values)[:, :updates] for name, values in told.items()}

    def evaluate(self, seeds: Sequence[Sequence[int]], noisy: Sequence[float], count: int) -> Array:
        """Returns [seeds, ways, count] of whole episodes.

        Args:
            seeds: of each training, and of each way to act.
            noisy: of each way: 1.0: actions are drawn; 0.0: the policy's mode.
            count: how many episodes.
        """
        keys = jnp.stack([jnp.stack([jax.random.key(way) for way in row]) for row in seeds])
        shape = (len(noisy), count)
        if shape not in self._programs:
            self._programs[shape] = self._lower_evaluation(*shape).compile()
        return np.asarray(self._programs[shape](self.loops.train, keys, jnp.array(noisy)))

    def broken(self) -> Array:
        """Of each training 0, or which of `CULPRITS` was no number."""
        return np.asarray(self.loops.broken)

    def state(self, row: int) -> TrainState:
        """What one of them has learnt, on the host."""
        taken: TrainState = jax.tree.map(lambda leaf: leaf[row], self.loops.train)
        return taken

    def arrays(self) -> dict[str, Array]:
        """All that the rest of the trainings depends on, on the host."""
        return {name: np.asarray(_plain(leaf)) for name, leaf in _named(self.loops)}

    def size(self) -> int:
        """Bytes of `arrays`."""
        leaves = jax.tree.leaves(
            jax.eval_shape(lambda loops: jax.tree.map(_plain, loops), self._shapes)
        )
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from `arrays`.

        Raises:
            ValueError: if they are of other trainings.
        """

        def taken(path: Any, shape: Any, place: Any) -> Array:
            name, raw = jax.tree_util.keystr(path), jax.eval_shape(_plain, shape)
            require(name in arrays, f"the checkpoint has no array {name!r}")
            array = np.asarray(arrays[name])
            require(
                array.shape == raw.shape and array.dtype == raw.dtype,
                f"{name!r} has {array.dtype} of shape {array.shape}, not {raw.dtype} {raw.shape}",
            )
            chance = jnp.issubdtype(shape.dtype, jax.dtypes.prng_key)
            leaf = jax.random.wrap_key_data(jnp.asarray(array)) if chance else array
            return jax.device_put(leaf, place)

        self.loops = jax.tree_util.tree_map_with_path(taken, self._shapes, self._places())

    # ------------------------------------------------------------------ the programs

    def _ready(self, name: str) -> Any:
        if name not in self._programs:
            self.compile()
        return self._programs[name]

    def _lower_start(self) -> Any:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(self.seeds)))
        return jax.jit(jax.vmap(self.training.begin), out_shardings=self._places()).lower(keys)

    def _lower_advance(self) -> Any:
        program = jax.jit(self._advance, donate_argnums=0, out_shardings=(self._places(), None))
        return program.lower(self._given(), jnp.int32(0))

    def _lower_evaluation(self, ways: int, count: int) -> Any:
        keys = jax.random.split(jax.random.key(0), (len(self.seeds), ways))
        noisy = jnp.array([0.0] * ways)
        program = jax.jit(self._returns, static_argnums=3)
        return program.lower(self._given().train, keys, noisy, count)

    def _advance(self, loops: Loop, updates: Array) -> tuple[Loop, Told]:
        update = self.training.loop.update

        def one(loop: Loop) -> tuple[Loop, Told]:
            report = jax.eval_shape(update, loop)[1]
            nothing = jax.tree.map(lambda x: jnp.zeros((self.chunk, *x.shape), x.dtype), report)

            def step(i: Array, now: tuple[Loop, Told]) -> tuple[Loop, Told]:
                loop, new = update(now[0])
                return loop, jax.tree.map(lambda all_, one: all_.at[i].set(one), now[1], new)

            done: tuple[Loop, Told] = jax.lax.fori_loop(0, updates, step, (loop, nothing))
            return done

        if len(self.seeds) > 1:
            return jax.vmap(one)(loops)
        # alone, without an axis that every operation would have to carry along
        alone = one(jax.tree.map(lambda leaf: leaf[0], loops))
        several: tuple[Loop, Told] = jax.tree.map(lambda leaf: leaf[None], alone)
        return several

    def _returns(self, trained: TrainState, keys: Array, noisy: Array, count: int) -> Array:
        evaluate = self.training.loop.evaluate

        def one(train: TrainState, key: Array, noisy: Array) -> Array:
            return evaluate(train, key, count, noisy)

        return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, 0, None))(trained, keys, noisy)

    @cached_property
    def _shapes(self) -> Loop:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(self.seeds)))
        shapes: Loop = jax.eval_shape(jax.vmap(self.training.begin), keys)
        return shapes

    def _given(self) -> Loop:
        """What programs are given, and where it is."""
        given: Loop = jax.tree.map(
            lambda shape, place: ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place),
            self._shapes,
            self._places(),
        )
        return given

    def _places(self) -> Loop:
        """Where each array is: with its seed, and what is of environments with those."""
        learnt, lived = (
            NamedSharding(self._placed.mesh, PartitionSpec(*axes))
            for axes in ((SEEDS,), (SEEDS, ENVIRONMENTS))
        )
        where = dict.fromkeys(Loop._fields, lived) | {"train": learnt, "broken": learnt}
        return Loop(
            **{
                name: jax.tree.map(lambda _, place=where[name]: place, part)
                for name, part in self._shapes._asdict().items()
            }
        )


def _placed(seeds: int, environments: int, devices: Sequence[Any]) -> NamedSharding:
    """The devices as a table: seeds one way, environments the other."""
    ways = math.gcd(seeds, len(devices))
    rest = len(devices) // ways
    require(
        environments % rest == 0,
        f"{len(devices)} devices: n_envs must be a multiple of {rest}, got {environments}",
    )
    mesh = Mesh(np.array(devices).reshape(ways, rest), (SEEDS, ENVIRONMENTS))
    return NamedSharding(mesh, PartitionSpec(SEEDS))


def memory_of(device: Any) -> int:
    """Bytes that a program may take there."""
    told = device.memory_stats() if device.platform != "cpu" else None
    if told and "bytes_limit" in told:
        return int(told["bytes_limit"])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _named(tree: Any) -> list[tuple[str, Array]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _plain(leaf: Array) -> Array:
    """A key as the numbers that it is made of; anything else as it is."""
    chance = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if chance else leaf
