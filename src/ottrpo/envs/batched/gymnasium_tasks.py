"""Gymnasium's MuJoCo environments as tasks: their settings, models and random draws are theirs.

The arithmetic is Gymnasium's to the bit, order of operations and precision included: a control
cost of float32 actions is summed in float32, as NumPy sums one environment's.
"""

from typing import Any, ClassVar

import numpy as np

from .forces import FORCE_FIELDS
from .task import Array, Columns, Fields, Outcome, Task


class GymnasiumTask(Task):
    """The task of one of Gymnasium's environments.

    Args:
        env: the environment as `gymnasium.make` gives it. It is asked for its settings and its
            random draws, so that no default stands in two places, and it draws the pictures.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.settings = env.unwrapped
        forces = not FORCE_FIELDS.isdisjoint(self.fields)
        super().__init__(
            self.settings.fullpath if forces else self.settings.model,
            frame_skip=self.settings.frame_skip,
            max_episode_steps=env.spec.max_episode_steps,
            render_mode=env.render_mode,
        )
        self.spec = env.spec
        self.data = self.settings.data
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self._drawn: tuple[Array, Array] = (np.empty(0), np.empty(0))
        self._drawing = _drawing(self)

    @property
    def name(self) -> str:
        """The id."""
        return str(self.env.spec.id)

    @property
    def shown(self) -> Any:
        """Gymnasium's environment."""
        return self.env

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """What Gymnasium's `reset` draws."""
        self.settings._np_random = rng
        self._drawing.reset_model()
        return self._drawn


def _drawing(task: GymnasiumTask) -> Any:
    """The environment, but that setting its state only says which it would be."""

    def note(self: Any, qpos: Array, qvel: Array) -> None:
        task._drawn = (qpos.copy(), qvel.copy())

    kind = type(task.settings)
    names = {"set_state": note, "_get_obs": lambda self: None}
    drawing: Any = object.__new__(type(kind.__name__, (kind,), names))
    drawing.__dict__ = task.settings.__dict__
    return drawing


def squared_sum(array_n: Array) -> Array:
    """The sum of squares of each row, added up as NumPy does for one row by itself."""
    flat = np.ascontiguousarray(array_n).reshape(len(array_n), -1)
    return np.asarray(np.sum(np.square(flat), axis=1))


def norm(vector_nk: Array) -> Array:
    """|v| of each row by the same BLAS call as `np.linalg.norm` of one; multiplying differs."""
    return np.asarray(np.sqrt(np.vecdot(vector_nk, vector_nk)))


def within(value: Array, bounds: tuple[float, float]) -> Array:
    """Whether values lie strictly between the bounds."""
    low, high = bounds
    return (low < value) & (value < high)


class Locomotion(GymnasiumTask):
    """Moving along x is rewarded.

    Attributes:
        axes: how many axes its position has, the first entries of `qpos`: x, or x and y.
    """

    axes: ClassVar[int] = 1

    def position(self, s: Fields) -> Array:
        """What moves, [n, axes]."""
        return np.asarray(s.qpos[:, : self.axes])

    def remember(self, s: Fields) -> Array:
        """Where it was."""
        return self.position(s).copy()

    def healthy(self, s: Fields) -> Array | None:
        """Whether it still stands; ``None`` if that is not asked."""
        return None

    def control_cost(self, s: Fields, action: Array) -> Array:
        """What its effort costs."""
        return np.asarray(self.settings._ctrl_cost_weight * squared_sum(action))

    def contact_cost(self, s: Fields) -> Array | None:
        """What touching costs; ``None`` if that is not asked."""
        return None

    def velocities(self, s: Fields) -> Array:
        """The observed velocities, [n, nv]."""
        return np.asarray(s.qvel)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """What is observed beside positions and velocities."""
        return ()

    def observe(self, s: Fields) -> Array:
        """Positions, without where along the way if so set, velocities, and what more there is."""
        skipped = self.axes if self.settings._exclude_current_positions_from_observation else 0
        return np.concatenate((s.qpos[:, skipped:], self.velocities(s), *self.further(s)), axis=1)

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is."""
        place = {"x_position": s.qpos[:, 0]}
        if self.axes == 2:
            place["y_position"] = s.qpos[:, 1]
            place["distance_from_origin"] = norm(s.qpos[:, :2])
        return place

    def score(self, s: Fields, before: Array, action: Array) -> Outcome:
        """Forward reward, health and costs."""
        velocity = (self.position(s) - before) / self.dt
        speed = {f"{'xy'[i]}_velocity": velocity[:, i] for i in range(self.axes)}
        gain = forward = self.settings._forward_reward_weight * velocity[:, 0]
        cost = control = self.control_cost(s, action)
        parts = {"reward_forward": forward, "reward_ctrl": -control}
        terminated = np.zeros(len(gain), np.bool_)
        healthy, contact = self.healthy(s), self.contact_cost(s)
        if contact is not None:
            cost = control + contact
            parts["reward_contact"] = -contact
        if healthy is not None:
            parts["reward_survive"] = survive = healthy * self.settings._healthy_reward
            gain = forward + survive
            if self.settings._terminate_when_unhealthy:
                terminated = ~healthy
        return Outcome(gain - cost, terminated, {**self.whereabouts(s), **speed, **parts})


class HalfCheetah(Locomotion):
    """Runs."""


class Swimmer(Locomotion):
    """Swims in the plane."""

    axes = 2


class Walker2d(Locomotion):
    """Walks upright in the vertical plane."""

    def healthy(self, s: Fields) -> Array:
        """Neither too low nor too high, and not leaning too much."""
        upright = within(s.qpos[:, 2], self.settings._healthy_angle_range)
        return within(s.qpos[:, 1], self.settings._healthy_z_range) & upright

    def velocities(self, s: Fields) -> Array:
        """Clipped."""
        return np.asarray(np.clip(s.qvel, -10, 10))

    def whereabouts(self, s: Fields) -> Columns:
        """Where along the way, and how high above the start."""
        height = s.qpos[:, 1] - self.settings.init_qpos[1]
        return {**super().whereabouts(s), "z_distance_from_origin": height}


class Hopper(Walker2d):
    """Hops."""

    def healthy(self, s: Fields) -> Array:
        """As a walker, and nothing out of its range but where along the way it is, and how high."""
        bounds = self.settings._healthy_state_range
        inside = within(s.qpos[:, 2:], bounds).all(axis=1) & within(s.qvel, bounds).all(axis=1)
        return np.asarray(inside & super().healthy(s))


class Ant(Locomotion):
    """Walks on four legs."""

    axes = 2
    fields = ("xpos", "cfrc_ext")

    def position(self, s: Fields) -> Array:
        """The torso's."""
        return np.asarray(s.xpos[:, self.model.body(self.settings._main_body).id, :2])

    def healthy(self, s: Fields) -> Array:
        """All finite, and at a height that is allowed, bounds included."""
        low, high = self.settings._healthy_z_range
        finite = np.isfinite(s.qpos).all(axis=1) & np.isfinite(s.qvel).all(axis=1)
        return np.asarray(finite & (low <= s.qpos[:, 2]) & (s.qpos[:, 2] <= high))

    def contact_forces(self, s: Fields) -> Array:
        """Clipped to their range."""
        return np.asarray(np.clip(s.cfrc_ext, *self.settings._contact_force_range))

    def contact_cost(self, s: Fields) -> Array:
        """Quadratic in the clipped forces."""
        forces = squared_sum(self.contact_forces(s))
        return np.asarray(self.settings._contact_cost_weight * forces)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """The contact forces on all bodies but the world."""
        if not self.settings._include_cfrc_ext_in_observation:
            return ()
        return (self.contact_forces(s)[:, 1:].reshape(len(s.qpos), -1),)


_WHOLE_BODY = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")  # in the order of the observation


def tendons(s: Fields) -> Columns:
    """How long the tendons are, and how fast that changes."""
    return {"tendon_length": s.ten_length, "tendon_velocity": s.ten_velocity}


class WholeBody(Locomotion):
    """Feels each of its parts, as far as the settings include it."""

    axes = 2
    fields: ClassVar[tuple[str, ...]] = ("ten_length", "ten_velocity", *_WHOLE_BODY)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """Inertias, velocities and forces of its parts."""
        return tuple(
            # the first six of the generalised forces are those on the free torso
            getattr(s, name)[:, 6 if name == "qfrc_actuator" else 1 :].reshape(len(s.qpos), -1)
            for name in _WHOLE_BODY
            if getattr(self.settings, f"_include_{name}_in_observation") is True
        )


class Humanoid(WholeBody):
    """Walks on two legs."""

    fields = ("xipos", *WholeBody.fields)

    def position(self, s: Fields) -> Array:
        """The centre of mass."""
        mass = self.settings.model.body_mass
        return np.asarray((np.einsum("b,nbj->nj", mass, s.xipos) / mass.sum())[:, :2])

    def healthy(self, s: Fields) -> Array:
        """Neither too low nor too high."""
        return within(s.qpos[:, 2], self.settings._healthy_z_range)

    def control_cost(self, s: Fields, action: Array) -> Array:
        """Quadratic in the controls that the simulation holds."""
        return super().control_cost(s, s.ctrl)

    def contact_cost(self, s: Fields) -> Array:
        """Quadratic in the forces, clipped."""
        cost = self.settings._contact_cost_weight * squared_sum(s.cfrc_ext)
        return np.asarray(np.clip(cost, *self.settings._contact_cost_range))

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is, and its tendons."""
        return {**super().whereabouts(s), **tendons(s)}


class HumanoidStandup(WholeBody):
    """Stands up: r = height / time step - control - impact + 1."""

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is, how high above the start, and its tendons."""
        x, y, z = s.qpos[:, :3].T
        height = z - self.settings.init_qpos[2]
        place = {"x_position": x, "y_position": y, "z_distance_from_origin": height}
        return {**place, **tendons(s)}

    def score(self, s: Fields, before: Array, action: Array) -> Outcome:
        """Height, effort and impact."""
        height = (s.qpos[:, 2] - 0) / self.model.opt.timestep
        control = self.control_cost(s, s.ctrl)
        impact = self.settings._impact_cost_weight * squared_sum(s.cfrc_ext)
        impact = np.clip(impact, *self.settings._impact_cost_range)
        parts = {"reward_linup": height, "reward_quadctrl": -control, "reward_impact": -impact}
        never = np.zeros(len(height), np.bool_)
        return Outcome(height - control - impact + 1, never, {**self.whereabouts(s), **parts})


class Arm(GymnasiumTask):
    """Bodies are to come near each other."""

    fields = ("xpos",)

    def at(self, s: Fields, body: str) -> Array:
        """Where a body is."""
        return np.asarray(s.xpos[:, self.model.body(body).id])

    def distance(self, s: Fields, body: str, other: str) -> Array:
        """How far two bodies are apart."""
        return norm(self.at(s, body) - self.at(s, other))

    def control(self, action: Array) -> Array:
        """The reward for little effort."""
        return np.asarray(-squared_sum(action) * self.settings._reward_control_weight)


class Reacher(Arm):
    """A fingertip to a target."""

    def observe(self, s: Fields) -> Array:
        """Angles as cosine and sine, the target, velocities, the way to the target."""
        angle = s.qpos[:, :2]
        way = (self.at(s, "fingertip") - self.at(s, "target"))[:, :2]
        parts = (np.cos(angle), np.sin(angle), s.qpos[:, 2:], s.qvel[:, :2], way)
        return np.concatenate(parts, axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """Near, with little effort."""
        far = -self.distance(s, "fingertip", "target") * self.settings._reward_dist_weight
        control = self.control(action)
        parts = {"reward_dist": far, "reward_ctrl": control}
        return Outcome(far + control, np.zeros(len(far), np.bool_), parts)


class Pusher(Arm):
    """An object to a goal, by an arm."""

    def observe(self, s: Fields) -> Array:
        """Angles, their velocities, and where tip, object and goal are."""
        bodies = (self.at(s, body) for body in ("tips_arm", "object", "goal"))
        return np.concatenate((s.qpos[:, :7], s.qvel[:, :7], *bodies), axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """The object near the goal, the tip near the object, with little effort."""
        near = -self.distance(s, "object", "tips_arm") * self.settings._reward_near_weight
        far = -self.distance(s, "object", "goal") * self.settings._reward_dist_weight
        control = self.control(action)
        parts = {"reward_dist": far, "reward_ctrl": control, "reward_near": near}
        return Outcome(far + control + near, np.zeros(len(far), np.bool_), parts)


class InvertedPendulum(GymnasiumTask):
    """One pole."""

    def observe(self, s: Fields) -> Array:
        """Positions and velocities."""
        return np.concatenate((s.qpos, s.qvel), axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """One point while the pole stands."""
        observation = self.observe(s)
        fell = ~np.isfinite(observation).all(axis=1) | (np.abs(observation[:, 1]) > 0.2)
        reward = (~fell).astype(np.int64)
        return Outcome(reward, fell, {"reward_survive": reward})


class InvertedDoublePendulum(GymnasiumTask):
    """A pole on a pole."""

    fields = ("site_xpos", "qfrc_constraint")

    def observe(self, s: Fields) -> Array:
        """The cart, the angles as sine and cosine, velocities, and the force on the cart."""
        angle = s.qpos[:, 1:]
        force = np.clip(s.qfrc_constraint, -10, 10)[:, :1]
        parts = (s.qpos[:, :1], np.sin(angle), np.cos(angle), np.clip(s.qvel, -10, 10), force)
        return np.concatenate(parts, axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """Standing, less where the tip is and how fast the poles turn."""
        x, _, y = s.site_xpos[:, 0].T
        # x ** 2 of an array is x * x; of Gymnasium's single numbers it is libm's `pow`, which
        # rounds otherwise once in a thousand times, and so does `float_power`
        distance = 0.01 * np.float_power(x, 2) + np.float_power(y - 2, 2)
        first, second = np.float_power(s.qvel[:, 1:3], 2).T
        velocity = 1e-3 * first + 5e-3 * second
        fell = y <= 1
        bonus = self.settings._healthy_reward * (~fell).astype(np.int64)
        parts = {
            "reward_survive": bonus,
            "distance_penalty": -distance,
            "velocity_penalty": -velocity,
        }
        return Outcome(bonus - distance - velocity, fell, parts)
