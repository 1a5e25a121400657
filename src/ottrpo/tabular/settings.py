"""What can be set in a tabular agent: frozen, checked once, closed.

The same names stand in the constructor of an agent, in the TOML files of
``ottrpo/experiments/configs`` and in the JSON beside a saved agent.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, final, get_args, get_origin

import numpy as np

from ottrpo.core import Binary, Cost, multiplier_of_step
from ottrpo.core.checks import positive_number, require, require_one_of
from ottrpo.core.cost_data import cost_from_data, cost_to_data

Estimator = Literal["model", "td", "mc", "exact"]
Target = Literal["sarsa", "expected", "max"]
Direction = Literal["forward", "backward"]
Occupancy = Literal["model", "visits", "discounted", "exact"]
Tie = Literal["lowest", "stay", "move"]
Multiplier = Literal["exact", "scalar", "original"]
Region = Literal["transport", "sinkhorn", "kl"]
Schedule = Callable[[float], float]

# Settings of the other estimators.
WITHOUT_MODEL = (
    "target",
    "keep_q",
    "initial_q",
    "learning_rate",
    "learning_rate_decay",
    "sweeps",
    "direction",
    "bootstrap_at_cap",
)
# The share of training after which nothing is tried for the sake of trying.
EXPLORING = 0.8
# Updates in a training, unless their size is given.
UPDATES = 250
PLAIN_STEPS_PER_UPDATE = 4_000
# The most of a Sinkhorn radius that entropy takes, unless its weight is given.
ENTROPY_SHARE = 0.1
# Settings that may be functions of the share of training that remains.
SCHEDULED = ("radius", "multiplier", "step")


@final
@dataclass(frozen=True)
class LinearSchedule:
    """From ``start`` to ``end`` in a straight line over the training steps.

    Called, like every schedule, with the share of training that remains: 1 at first, 0 at last.

    >>> LinearSchedule(0.5, 0.25)(0.5)
    0.375
    """

    start: float
    end: float

    def __call__(self, progress_remaining: float) -> float:
        """The value when this share of training remains."""
        return self.end + progress_remaining * (self.start - self.end)


# The radius that follows from the problem, in mean costs of a move: large while little is known,
# and small in the end, so that the policy settles.
MODEL_RADIUS, PLAIN_RADIUS = LinearSchedule(0.3, 0.003), LinearSchedule(0.02, 0.02)


@dataclass(frozen=True, kw_only=True)
class TabularSettings:
    """What the agents share: how to estimate Q and the occupancy, and how to update.

    Attributes:
        discount: γ. By default 1 with ``model``, whose horizon is the step cap, and 0.99 else.
        estimator: ``model`` (exact evaluation under the counts of all steps ever taken), ``td``
            (the paper's), ``mc`` (mean of the returns that followed each pair) or ``exact``
            (policy evaluation; needs a known transition table). By default ``model``, or ``td``
            where a setting is given that has no meaning for a model.
        optimism: with ``model``, visits in favour of every pair, that count less and less until
            four fifths of training are over; models are drawn as long. 0 never tries what was
            never tried, and draws none.
        target: what stands for the value of the next state in a TD target: Q of the action taken
            there (``sarsa``, the paper's formula), the policy's mean (``expected``) or the
            maximum (``max``).
        keep_q: whether Q carries over from one update to the next, or starts afresh each time.
        initial_q: what Q starts from. At or above the best return, every pair is worth trying
            until it has been tried: 0 is such a value where rewards are negative.
        learning_rate: α of the TD formula; with ``mc`` and a kept Q, the step towards the mean.
        learning_rate_decay: α is divided by n(s, a) to this power, n counting updates of the pair.
        sweeps: TD passes over each batch.
        direction: ``forward`` in time or ``backward``, which carries rewards back in one sweep.
        bootstrap_at_cap: whether an episode that the step cap cut short is valued as if it went
            on. False treats the cut as the end of the task.
        normalise_returns: z-score the returns of each batch (``mc`` only).
        occupancy: ``model`` (expected under the counts; needs that estimator, and is its default),
            ``visits`` (each counts 1, the default else), ``discounted`` (γᵗ) or ``exact`` (known
            table).
        normalise_occupancy: whether the occupancy sums to one; if not, it is a mean per episode.
        radius: ε, a positive number or a schedule (a function of the share of training that
            remains, or ``{"start": ..., "end": ...}`` for a straight line). By default it follows
            from the cost: with ``model`` from 0.3 to 0.003 times the mean cost of a move, in a
            straight line, and 0.02 times else.
        cost: of moving probability between actions; a cost of `ottrpo.core` or its plain data.
        episodes_per_update: whole episodes to play, at least, before each update.
        steps_per_update: steps to play, at least, before each update; episodes are finished. By
            default a 250th of the training with ``model``, and 4,000 else.
        masks: whether to obey the environment's ``action_mask``.
        step_cap: steps after which an episode is truncated; None keeps the environment's limit,
            or the catalogue's where it has none.
    """

    discount: float | None = None
    estimator: Estimator | None = None
    optimism: float = 10.0
    target: Target = "max"
    keep_q: bool = True
    initial_q: float = 0.0
    learning_rate: float = 0.5
    learning_rate_decay: float = 0.0
    sweeps: int = 1
    direction: Direction = "backward"
    bootstrap_at_cap: bool = True
    normalise_returns: bool = False
    occupancy: Occupancy | None = None
    normalise_occupancy: bool = True
    radius: float | Schedule | None = None
    cost: Cost = field(default_factory=Binary)
    episodes_per_update: int = 1
    steps_per_update: int | None = None
    masks: bool = False
    step_cap: int | None = None

    def __post_init__(self) -> None:
        self._settle_estimation()
        object.__setattr__(self, "cost", cost_from_data(self.cost))
        if self.radius is not None:
            object.__setattr__(self, "radius", _scheduled("radius", self.radius))
        _at_least_one("episodes_per_update", self.episodes_per_update)
        for name in ("steps_per_update", "step_cap"):
            if getattr(self, name) is not None:
                _at_least_one(name, getattr(self, name))

    def _settle_estimation(self) -> None:
        """Check how to estimate, and choose what was left open."""
        beyond_model = [name for name in WITHOUT_MODEL if self._is_given(name)]
        if self.estimator is None:
            object.__setattr__(self, "estimator", "td" if beyond_model else "model")
        if self.discount is None:
            object.__setattr__(self, "discount", 1.0 if self.by_model else 0.99)
        if self.occupancy is None:
            object.__setattr__(self, "occupancy", "model" if self.by_model else "visits")
        for each in fields(self):
            allowed, value = _choices(each.type), getattr(self, each.name)
            told = f"{each.name} must be one of {', '.join(allowed)}; got {value!r}"
            require(not allowed or value in allowed, told)
        for name, right, must in (
            ("discount", 0 <= self.gamma <= 1, "lie in [0, 1]"),
            ("optimism", math.isfinite(self.optimism) and self.optimism >= 0, "not be negative"),
            ("learning_rate", 0 < self.learning_rate <= 1, "lie in (0, 1]"),
            ("learning_rate_decay", self.learning_rate_decay >= 0, "not be negative"),
            ("initial_q", math.isfinite(self.initial_q), "be finite"),
            ("sweeps", self.sweeps >= 1, "be at least 1"),
        ):
            require(right, f"{name} must {must}, got {getattr(self, name)}")
        require(
            self.estimator == "mc" or not self.normalise_returns,
            f"normalise_returns needs estimator 'mc', got estimator {self.estimator!r}",
        )
        require(
            self.by_model or self.occupancy != "model",
            f"occupancy 'model' needs estimator 'model', got estimator {self.estimator!r}",
        )
        unmeant = beyond_model if self.by_model else ["optimism"] * self._is_given("optimism")
        require(
            not unmeant, f"{', '.join(unmeant)} has no meaning for estimator {self.estimator!r}"
        )

    def _is_given(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)

    @property
    def by_model(self) -> bool:
        """Whether the estimates are those of an empirical model."""
        return self.estimator == "model"

    @property
    def gamma(self) -> float:
        """The discount, which is known once the estimator is."""
        return 1.0 if self.discount is None else self.discount

    def optimism_at(self, progress_remaining: float) -> float:
        """Visits in favour of every pair when this share of training remains."""
        return self.optimism * max(0.0, 1.0 - (1.0 - progress_remaining) / EXPLORING)

    def settles(self, progress_remaining: float) -> bool:
        """Whether a policy by a model now follows the slope of the score (see `model`)."""
        return progress_remaining <= 1.0 - EXPLORING

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain data, refusing names that are not settings."""
        known = [f.name for f in fields(cls)]
        for name in values:
            require_one_of(name, known, "a setting")
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for a file. A schedule that is a function of one's own is left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["cost"] = cost_to_data(self.cost)
        for name in SCHEDULED:
            if isinstance(values.get(name), LinearSchedule):
                values[name] = {"start": values[name].start, "end": values[name].end}
            elif callable(values.get(name)):
                del values[name]
        return values

    def radius_at(self, progress_remaining: float, typical_cost: float) -> float:
        """ε when this share of training remains.

        Args:
            progress_remaining: 1 at first, 0 at last.
            typical_cost: the mean cost of moving from one action to another.
        """
        if self.radius is None:
            schedule = MODEL_RADIUS if self.by_model else PLAIN_RADIUS
            return typical_cost * schedule(progress_remaining)
        return _value_of("radius", self.radius, progress_remaining)

    def typical_cost(self, n_states: int, n_actions: int) -> float:
        """The mean cost of moving from one action to another; 1 where there is nothing to pay."""
        cost = self.cost.matrix(n_actions, n_states if self.cost.depends_on_state else None)
        moves = ~np.eye(n_actions, dtype=np.bool_)
        return float(cost[..., moves].mean()) or 1.0 if moves.any() else 1.0

    def steps_until_update(self, total_timesteps: int) -> int:
        """Steps to play before each update of a training of so many."""
        if self.steps_per_update is not None:
            return self.steps_per_update
        return max(1, total_timesteps // UPDATES) if self.by_model else PLAIN_STEPS_PER_UPDATE


@final
@dataclass(frozen=True, kw_only=True)
class RegionSettings(TabularSettings):
    """The settings of `TabularOTTRPO`: those of `TabularSettings`, which region, and which mode.

    Attributes:
        region: what the radius limits, on average over the states: ``transport``, the discrepancy
            C(π, π̃) as in the paper; ``sinkhorn``, what the plan transports plus `entropy` times its
            divergence from the uniform one, so that C is within the radius too and every action
            keeps some mass; ``kl``, the divergence KL(π̃ | π) in nats, without a cost.
        entropy: τ of ``sinkhorn``. By default so much that it takes a tenth of the radius at most.
        multiplier: a price λ on what the region measures, in place of a radius; a number or a
            schedule.
        step: η of a proximal step, which maximises the gain less what the region measures
            divided by 2η: a multiplier of 1/(2η).
    """

    region: Region = "transport"
    entropy: float | None = None
    multiplier: float | Schedule | None = None
    step: float | Schedule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in SCHEDULED if getattr(self, name) is not None]
        require(len(given) < 2, f"give one of {', '.join(SCHEDULED)}; got {' and '.join(given)}")
        for name in given:
            object.__setattr__(self, name, _scheduled(name, getattr(self, name)))
        if self.entropy is not None:
            object.__setattr__(self, "entropy", positive_number("entropy", self.entropy))
        sinkhorn, priced = self.region == "sinkhorn", self.multiplier or self.step
        require(
            sinkhorn or self.entropy is None,
            f"entropy needs region 'sinkhorn', got region {self.region!r}",
        )
        require(
            not (sinkhorn and priced) or self.entropy is not None,
            f"region 'sinkhorn' with a {' or '.join(given)} needs an entropy: there is no radius "
            "that it could follow from",
        )
        require(
            self.region != "kl" or isinstance(self.cost, Binary),
            f"cost has no meaning for region 'kl', got {cost_to_data(self.cost)}",
        )

    def multiplier_at(self, progress_remaining: float) -> float | None:
        """The price λ when this share of training remains; None if there is a radius."""
        if self.multiplier is not None:
            return _value_of("multiplier", self.multiplier, progress_remaining)
        if self.step is not None:
            return multiplier_of_step(_value_of("step", self.step, progress_remaining))
        return None

    def entropy_for(self, radius: float, occupancy: float, n_actions: int) -> float:
        """τ of a Sinkhorn region: no plan diverges by more than log A from the uniform one.

        Args:
            radius: of the region.
            occupancy: of all states together.
            n_actions: A.
        """
        if self.entropy is not None:
            return self.entropy
        return ENTROPY_SHARE * radius / (occupancy * math.log(max(n_actions, 2)))


@final
@dataclass(frozen=True, kw_only=True)
class WPOSettings(TabularSettings):
    """The settings of `WPO`: those of `TabularSettings` and how its single map is chosen.

    Attributes:
        tie: which of several equally good targets takes the mass: the ``lowest`` index (as in the
            original code), the cheapest (``stay``) or the dearest (``move``).
        multiplier: ``exact`` (our dual), ``scalar`` (a numerical minimiser at every update) or
            ``original`` (simulated annealing on [0, 4] at first, then fixed; see below).
        solve_episodes: with ``original``, episodes during which the dual is solved.
        fixed_multiplier: with ``original``, the multiplier after them.
        fixed_multiplier_spread: width of the uniform noise added to it at each update.
        update_unvisited: whether states that the batch did not visit are mapped too.
    """

    tie: Tie = "lowest"
    multiplier: Multiplier = "exact"
    solve_episodes: int = 1000
    fixed_multiplier: float = 0.5
    fixed_multiplier_spread: float = 0.0
    update_unvisited: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.fixed_multiplier >= self.fixed_multiplier_spread / 2 >= 0,
            "fixed_multiplier must be at least half of fixed_multiplier_spread, got "
            f"{self.fixed_multiplier} and {self.fixed_multiplier_spread}",
        )


def _scheduled(name: str, value: Any) -> float | Schedule:
    if isinstance(value, Mapping):
        require(
            set(value) == {"start", "end"},
            f"a {name} schedule has a 'start' and an 'end', got {dict(value)}",
        )
        return LinearSchedule(
            positive_number(f"the start of the {name}", value["start"]),
            positive_number(f"the end of the {name}", value["end"]),
        )
    return value if callable(value) else positive_number(name, value)


def _value_of(name: str, value: float | Schedule, progress_remaining: float) -> float:
    if callable(value):
        return positive_number(f"the {name} schedule's value", value(progress_remaining))
    return value


def _choices(kind: Any) -> tuple[str, ...]:
    """What a setting of this type may be, if it is a choice."""
    return next((get_args(k) for k in (kind, *get_args(kind)) if get_origin(k) is Literal), ())


def _at_least_one(name: str, value: object) -> None:
    require(
        isinstance(value, int) and value >= 1, f"{name} must be a positive integer, got {value!r}"
    )
