"""BGPG: behaviour-guided policy gradient, a policy gradient with a Wasserstein penalty.

    BGPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Pacchiano et al., Learning to Score Behaviors for Guided Policy Optimization (2020).
"""

from typing import final

from ottrpo.engine.algorithms.bgpg import BehaviourGuided

from .guided import GuidedAgent, GuidedSettings


@final
class BGPG(GuidedAgent):
    """Behaviour-guided policy gradient with Stable-Baselines3's interface.

    The defaults are those of the published experiments; docs/bgpg.md says where each comes from.
    """

    settings_type = GuidedSettings

    def _algorithm(self) -> BehaviourGuided:
        return BehaviourGuided(**self._shared())
