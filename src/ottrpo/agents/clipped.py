"""PPO's clipped loss on the engine of OT-TRPO: what is left when the trust region is taken away.

    ClippedPPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

It differs from `OTTRPO` in the loss alone, so that a comparison is one of losses; and it runs
wherever OT-TRPO does, also inside JAX. Stable-Baselines3's PPO is the agent ``ppo``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from ottrpo.engine.algorithms.clipped import ClippedRatio

from .base import DeepAgent
from .ottrpo import OTTRPO
from .settings import DeepSettings


@final
@dataclass(frozen=True, kw_only=True)
class ClippedSettings(DeepSettings):
    """The settings of `ClippedPPO`.

    Attributes:
        normalize_advantage: standardise the advantages of each minibatch.
        clip_range: of the ratio of probabilities, about 1.
        ent_coef: weight of the entropy bonus.
    """

    positional: ClassVar[tuple[str, ...]] = (
        *("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda"),
        "clip_range",
    )

    instead: ClassVar[Mapping[str, str]] = {
        **DeepSettings.instead,
        "clip_range_vf": "only the policy is clipped; see vf_coef, learning_rate",
    }

    clip_range: float = 0.2
    ent_coef: float = 0.0


@final
class ClippedPPO(DeepAgent):
    """PPO's loss with all else as in OT-TRPO, and Stable-Baselines3's interface."""

    settings_type, algorithm_type = ClippedSettings, ClippedRatio
    told: ClippedSettings
    LOG_STD_INIT: ClassVar[float] = OTTRPO.LOG_STD_INIT
