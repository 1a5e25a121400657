"""OT-TRPO with networks: trust-region policy optimisation in an optimal-transport region.

    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Algorithm 1 of the paper is `ottrpo.engine.algorithms.ottrpo`.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, final

from ottrpo.core import Binary, Cost, Ordinal, SquaredEuclidean
from ottrpo.engine import models
from ottrpo.engine.algorithms.mixed import MixedTrustRegion
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.models.base import Options, quadratic_metric
from ottrpo.engine.schedules import Schedules, as_schedule
from ottrpo.engine.spaces import BinnedActions, BoxActions

from .base import DeepAgent
from .radius import Radius
from .settings import OTTRPOSettings

BOX_RADIUS, LABELS_RADIUS = "30%", "10%"
# what an update may really go: in most tasks a fit of the targets of 30 % gets about as far
SMALL_RADIUS = "1%"
# of what a step really goes: far while most of it is real, then ever less
MIXED_RADIUS = {"start": "5%", "end": "1%"}
MIXED_STD_STEP, MIXED_HOLD_OUT = 0.01, 0.1
# long traces and slow noise find what pays late; soon they only make noise
MIXED_TRACE = {"start": 0.98, "end": 0.9, "end_fraction": 0.1}
MIXED_COLOR = {"start": 1.0, "end": 0.0, "end_fraction": 0.1}
# √d σ at first: a body with many joints falls over noise that a car needs to get anywhere
MIXED_NOISE = 0.7


@final
class OTTRPO(DeepAgent):
    """Optimal-transport trust-region policy optimisation, drop-in for SB3's on-policy agents."""

    settings_type = OTTRPOSettings
    told: OTTRPOSettings
    algorithm: TrustRegion
    LOG_STD_INIT: ClassVar[float] = -0.7

    def _setup_model(self) -> None:
        super()._setup_model()
        if (
            self.env is not None
            and self.told.normalize_advantage
            and self.told.n_steps * self.n_envs == 1
        ):
            raise ValueError(
                "n_steps times the number of environments must be above 1: a single advantage "
                "minus its mean is 0, and nothing would be learnt"
            )

    @property
    def estimator(self) -> str:
        """What is known of the advantage: as told, or the best that can be used here."""
        told = self.told
        if told.advantage is not None:
            return told.advantage
        usual = told.update != "ascent" and told.trust_region == "exact" and not told.adapt_pace
        usual &= not (told.learn_std or told.use_sde or told.log_std_final is not None)
        usual &= told.model == "linear" and told.hold_out != 0 and not self.layout.images
        if not usual or not isinstance(self.actions, BoxActions):
            return "gae"
        cost = SquaredEuclidean() if told.cost is None else told.cost
        return "gae" if quadratic_metric(cost, self.actions.size) is None else "mixed"

    def _plan_networks(self) -> None:
        super()._plan_networks()
        said = "log_std_init" in (self.policy_kwargs or {})
        if self.estimator == "mixed" and isinstance(self.actions, BoxActions) and not said:
            log_std = math.log(MIXED_NOISE) - 0.5 * math.log(self.actions.size)
            self.architecture = replace(self.architecture, log_std_init=log_std)

    def _schedules(self, **more: Any) -> Schedules:
        mixed = self.estimator == "mixed"
        default: Any = BOX_RADIUS if isinstance(self.actions, BoxActions) else LABELS_RADIUS
        if mixed or self.told.adapt_pace:
            default = MIXED_RADIUS if mixed else SMALL_RADIUS
        self._radius = Radius(default if self.told.radius is None else self.told.radius)
        log_std = None
        if self.told.log_std_final is not None:
            log_std = (float(self.architecture.log_std_init or 0.0), self.told.log_std_final)
        schedules = super()._schedules(radius=self._radius.schedule, log_std=log_std, **more)
        if mixed and self.told.gae_lambda is None:
            schedules = replace(schedules, gae_lambda=as_schedule(MIXED_TRACE))
        if mixed and self.told.noise_color is None:
            schedules = replace(schedules, noise_color=as_schedule(MIXED_COLOR))
        return schedules

    def _outdated(self) -> bool:
        return bool(self.algorithm.relative != self._radius.relative)

    def _algorithm(self) -> TrustRegion:
        model = models.model_for(str(self.told.model), self.estimator, self.actions)
        mixed = self.estimator == "mixed"
        given: dict[str, Any] = {
            "model": model(self._options()),
            "learned": self.estimator == "network",
            "relative": self._radius.relative,
            "exact": self.told.trust_region == "exact",
            "adapt_pace": self.told.adapt_pace,
            "std_step": self._std_step,
            "hold_out": _or(self.told.hold_out, MIXED_HOLD_OUT if mixed else 0.0),
            **self._shared(),
        }
        if not mixed:
            return TrustRegion(**given)
        if self.layout.images:
            raise ValueError("advantage 'mixed' keeps no images; use 'gae' or 'network'")
        steps = self.told.n_steps
        rollout = steps * (1 if self.env is None else self.n_envs)
        return MixedTrustRegion(
            n_steps=steps,
            rollouts=max(1, self.told.buffer_size // rollout),
            critic_ratio=self.told.critic_ratio,
            **given,
        )

    @property
    def _std_step(self) -> float:
        return _or(self.told.std_step, MIXED_STD_STEP if self.estimator == "mixed" else 0.0)

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
        return Options(
            cost=cost,
            actions=self.actions,
            update=self.told.update,
            learn_std=self.told.learn_std,
            std_moves=moves_std or self.told.use_sde,
            n_candidates=self.told.n_candidates,
            n_sources=self.told.n_sources,
            shrink=self.told.trust_region == "exact",
        )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
