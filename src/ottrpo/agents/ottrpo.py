"""OT-TRPO with networks: trust-region policy optimisation in an optimal-transport region.

    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Algorithm 1 of the paper is `ottrpo.engine.algorithms.ottrpo`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, final

from ottrpo.core import Binary, Cost, Ordinal, SquaredEuclidean
from ottrpo.core.checks import Refused
from ottrpo.engine import models
from ottrpo.engine.algorithms.fisher import FisherRao
from ottrpo.engine.algorithms.mixed import MixedTrustRegion
from ottrpo.engine.algorithms.mixed_labels import MixedLabels
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.densities import RichActions
from ottrpo.engine.models.base import Options, quadratic_metric
from ottrpo.engine.schedules import (
    CRITIC_RATE,
    FADING_TRACE,
    Either,
    Schedules,
    Straight,
    as_schedule,
)
from ottrpo.engine.spaces import BinnedActions, BoxActions
from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Saved

from .base import DeepAgent
from .policies import weight_decay_of
from .radius import Radius
from .settings import OTTRPOSettings

BOX_RADIUS, LABELS_RADIUS = "30%", "10%"
RICH_RADIUS = "10%"  # which samples in several places really spend
# of labels the divergence grows like the square of the mass that is moved
LABELS_KL_RADIUS = "1%"
# of several factors, whose gains are taken as they are: far at first, where much is to be found
FACTORS_RADIUS = {"start": "100%", "end": "20%"}
# what an update may really go: in most tasks a fit of the targets of 30 % gets about as far
SMALL_RADIUS = "1%"
# of what a step really goes: far while most of it is real, then ever less
MIXED_RADIUS = {"start": "5%", "end": "1%"}
MIXED_LABELS_RADIUS = {"start": "10%", "end": "1%"}
MIXED_STD_STEP, MIXED_HOLD_OUT = 0.01, 0.1
# long traces and slow noise find what pays late; where bodies fall, they make them fall
SOON = 0.1  # of training, after which such a body has neither
# others keep slow noise for half of training: who stops to look for better gaits keeps a slow one
LATE = 0.5
MIXED_TRACE = Either(as_schedule(FADING_TRACE), Straight(0.98, 0.9, SOON))
MIXED_COLOR = Either(Straight(1.0, 0.0, LATE), Straight(1.0, 0.0, SOON))
# where nothing ends: with a rate that stayed, returns fell again in the second half of training
MIXED_CRITIC_RATE = Straight(CRITIC_RATE, 0.1 * CRITIC_RATE)
# lengths of an episode that it looks ahead where none ends: a time limit is no end; with a view of
# one length single Swimmers hardly learnt to swim
MIXED_EPISODES = 10.0
# √d σ at first: a body with many joints falls over noise that a car needs to get anywhere
MIXED_NOISE = 0.7


@final
class OTTRPO(DeepAgent):
    """Optimal-transport trust-region policy optimisation, drop-in for SB3's on-policy agents."""

    settings_type = OTTRPOSettings
    told: OTTRPOSettings
    algorithm: TrustRegion
    LOG_STD_INIT: ClassVar[float] = -0.7
    _built_with: str | None = None

    def _setup_model(self) -> None:
        self._built_with = None
        super()._setup_model()
        self._built_with = self.estimator
        if (
            self.env is not None
            and self.told.normalize_advantage
            and self.told.n_steps * self.n_envs == 1
        ):
            raise Refused(
                "n_steps times the number of environments must be above 1: a single advantage "
                "minus its mean is 0, and nothing would be learnt"
            )

    @property
    def estimator(self) -> str:
        """What is known of the advantage: as told, or the best that can be used here.

        Once it is built an agent keeps it, whatever environments come.
        """
        return self._built_with or self._estimator(self.told)

    def _estimator(self, told: OTTRPOSettings) -> str:
        if told.advantage is not None:
            return told.advantage
        if isinstance(self.actions, RichActions):
            return "network"
        usual = told.region == "transport"
        fitting = (None, "regression") if isinstance(self.actions, BoxActions) else (None,)
        usual &= told.update in fitting and told.trust_region == "exact" and not told.adapt_pace
        usual &= not (told.learn_std or told.use_sde or told.log_std_final is not None)
        usual &= told.model == "linear" and told.hold_out != 0 and not self.layout.images
        usual &= told.clip_range_vf is None and not weight_decay_of(self.policy_kwargs)
        usual &= told.price is None
        return "mixed" if usual and self._suit_critics(told) else "gae"

    def _suit_critics(self, told: OTTRPOSettings) -> bool:
        """Whether critics can tell what actions like these are worth."""
        if isinstance(self.actions, BoxActions):
            cost = SquaredEuclidean() if told.cost is None else told.cost
            return quadratic_metric(cost, self.actions.size) is not None
        from ottrpo.collect.host import offers_masks  # who lacks JAX is told of JAX first

        one_choice = not isinstance(self.actions, BinnedActions) and self.actions.factors == 1
        masked = self.env is not None and offers_masks(self.env)
        knows_states = told.cost is not None and told.cost.depends_on_state
        return one_choice and not masked and not knows_states

    @classmethod
    def _read(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        """As all are read; whoever was saved without critics has none."""
        names = ("critic.", "advantage.")
        with bundle.interpreting(saved.path):
            said = "advantage" in settings or saved.data["settings"].get("advantage") is not None
        if said or any(array.startswith(names) for array in saved.arrays):
            return super()._read(saved, env, settings)
        agent = super()._read(saved, env, {"advantage": "gae", **settings})
        agent.told = agent.told.changed(advantage=None)  # what was saved is what is told
        return agent

    def tell(self, name: str, value: Any) -> None:
        """Change a setting; from the next update on it counts.

        Raises:
            ValueError: if it is not as it must be, or can't change any more.
        """
        if "schedules" in vars(self):
            needed = self._estimator(self.told.changed(**{name: value}))
            if name not in self.told.fixed and needed != self._estimator(self.told):
                raise ValueError(
                    f"{name} can't change once an agent is built with advantage "
                    f"{self.estimator!r}; make another with advantage {needed!r}"
                )
        super().tell(name, value)

    def _plan_networks(self) -> None:
        super()._plan_networks()
        said = "log_std_init" in (self.policy_kwargs or {})
        if self.estimator == "mixed" and isinstance(self.actions, BoxActions) and not said:
            log_std = math.log(MIXED_NOISE) - 0.5 * math.log(self.actions.size)
            self.architecture = replace(self.architecture, log_std_init=log_std)

    def _schedules(self, **more: Any) -> Schedules:
        mixed = self.estimator == "mixed"
        labels: Any = FACTORS_RADIUS if self._takes_gains_of_factors else LABELS_RADIUS
        if self.told.region == "kl":
            labels = LABELS_KL_RADIUS
        default: Any = BOX_RADIUS if isinstance(self.actions, BoxActions) else labels
        if isinstance(self.actions, RichActions):
            default = RICH_RADIUS
        spends = self.told.adapt_pace or self.told.update == "natural"
        if mixed or spends:
            default = MIXED_RADIUS if mixed else SMALL_RADIUS
        if mixed and not isinstance(self.actions, BoxActions):
            default = MIXED_LABELS_RADIUS
        self._radius = Radius(default if self.told.radius is None else self.told.radius)
        log_std = None
        if self.told.log_std_final is not None:
            log_std = (float(self.architecture.log_std_init or 0.0), self.told.log_std_final)
        more |= {"multiplier": self.told.price, "log_std": log_std}
        schedules = super()._schedules(radius=self._radius.schedule, **more)
        if mixed:
            schedules = replace(schedules, episodes=MIXED_EPISODES)
        if mixed and not self._is_short:
            schedules = replace(schedules, critic_rate=MIXED_CRITIC_RATE)
        if mixed and self.told.gae_lambda is None:
            schedules = replace(schedules, gae_lambda=MIXED_TRACE)
        if mixed and self.told.noise_color is None:
            color = 0.0 if self._is_short else MIXED_COLOR
            schedules = replace(schedules, noise_color=color)
        return schedules

    def _setup_learn(self, *arguments: Any, **keywords: Any) -> Any:
        set_up = super()._setup_learn(*arguments, **keywords)
        self.schedules = self._schedules()  # how long training will take has a say in them
        return set_up

    @property
    def _is_short(self) -> bool:
        """Whether training is over before what fades soon has faded: in ten rollouts."""
        return 0 < self._total_timesteps * SOON < self.told.n_steps * self.n_envs

    @property
    def _takes_gains_of_factors(self) -> bool:
        """Whether the update of several factors is that of their gains as they are."""
        told, actions = self.told, self.actions
        if isinstance(actions, BoxActions | BinnedActions) or actions.factors == 1:
            return False
        return self.estimator == "gae" and told.model == "linear" and told.update in (None, "gain")

    def _outdated(self) -> bool:
        return bool(self.algorithm.relative != self._radius.relative)

    def _algorithm(self) -> TrustRegion:
        model = models.model_for(str(self.told.model), self.estimator, self.actions)
        mixed = self.estimator == "mixed"
        kind: Any = TrustRegion
        if self.told.update == "natural":
            kind = FisherRao
            if (self.told.region, self.estimator, self.told.adapt_pace) != ("kl", "gae", False):
                raise ValueError(
                    "update 'natural' needs region 'kl', advantage 'gae' and no adapt_pace"
                )
        if mixed:
            kind = MixedTrustRegion if isinstance(self.actions, BoxActions) else MixedLabels
        given = self._given(kind) | {
            "model": model(self._options()),
            "learned": self.estimator == "network",
            "relative": self._radius.relative,
            "exact": self.told.trust_region == "exact",
            "std_step": self._std_step,
            "hold_out": _or(self.told.hold_out, MIXED_HOLD_OUT if mixed else 0.0),
        }
        if mixed:
            self._require_critics(given["weight_decay"])
            given["rollouts"] = self._window(self.told.buffer_size)
        algorithm: TrustRegion = kind(**given)
        return algorithm

    def _require_critics(self, weight_decay: float) -> None:
        """Refuse what ``mixed`` has no way to do."""
        if weight_decay:
            raise ValueError("advantage 'mixed' has no weight_decay; use 'gae' or 'network'")
        if self.layout.images:
            raise ValueError("advantage 'mixed' keeps no images; use 'gae' or 'network'")
        if not self._suit_critics(self.told):
            raise ValueError(
                "advantage 'mixed' is for boxes with a quadratic cost, and for one choice among "
                "labels without masks and with a cost that knows no states; use 'gae' or 'network'"
            )

    @property
    def _std_step(self) -> float:
        moves = self.estimator == "mixed" and isinstance(self.actions, BoxActions)
        return _or(self.told.std_step, MIXED_STD_STEP if moves else 0.0)

    def _options(self) -> Options:
        box = isinstance(self.actions, BoxActions)
        labels = Ordinal() if isinstance(self.actions, BinnedActions) else Binary()
        default: Cost = SquaredEuclidean() if box else labels
        cost = default if self.told.cost is None else self.told.cost
        if cost.takes_labels is box:
            kind = "labels" if cost.takes_labels else "points"
            raise ValueError(f"cost {cost!r} is for {kind}; the actions are {self.action_space}")
        moves_std = self.told.learn_std or self.told.log_std_final is not None
        moves_std |= self._std_step > 0
        if not box and (moves_std or self.told.n_sources or self.told.coloured):
            raise ValueError(
                "learn_std, std_step, log_std_final, n_sources and noise_color need actions in a "
                f"Box, got {self.action_space}"
            )
        own = {"cost": cost, "actions": self.actions, "std_moves": moves_std or self.told.use_sde}
        if self.told.update == "natural":  # a way to step, whatever the model
            own["update"] = None
        return Options(**self.told.of(Options) | own, shrink=self.told.trust_region == "exact")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
