"""The paper's learned advantage: sampled targets, from the mean or from sampled sources."""

from typing import Any, NamedTuple, final

from ottrpo.engine.advantage import AdvantageNetwork
from ottrpo.engine.arrays import Generator, namespace
from ottrpo.engine.estimate import Experience

from .base import Options, Plan, recorded
from .gaussian import CandidatesModel

Array = Any


class Draws(NamedTuple):
    """Standard normal numbers of the sources [r, j, d] and of the candidates [r, k, d]."""

    source: Array
    candidate: Array


@final
class Candidates(CandidatesModel):
    """Every source may go to n targets drawn from the policy, whose gains the network tells."""

    name = "candidates"
    advantages = ("network",)
    samples = True

    def __init__(self, options: Options) -> None:
        self.moves_std = options.n_sources > 0
        super().__init__(options)

    def draw(self, rows: int, rng: Generator) -> Draws:
        """Of sources and candidates."""
        sources = max(self.options.n_sources, 1)
        source = rng.standard_normal((rows, sources, self.size))
        candidate = rng.standard_normal((rows, self.options.n_candidates, self.size))
        # the mean is the source with z = 0
        return Draws(source if self.options.n_sources else 0.0 * source, candidate)

    def plan(
        self,
        batch: Experience,
        advantage_r: Array,
        radius: Array,
        network: AdvantageNetwork | None,
        draws: Any,
    ) -> Plan:
        """N + 1 candidates for every source: itself first."""
        if network is None:
            raise TypeError("model 'candidates' needs a learned advantage")
        mean, std = recorded(batch, "mean", "std")
        xp = namespace(mean)
        sources = draws.source.shape[1]
        source = mean[:, None] + std[:, None] * draws.source
        candidate = mean[:, None] + std[:, None] * draws.candidate
        asked = xp.concatenate([source, candidate], axis=1)
        gain = network.gain(batch.flat, batch.images, asked)
        stay = source.reshape(-1, 1, self.size), gain[:, :sources].reshape(-1, 1)
        move = (xp.repeat(array, sources, axis=0) for array in (candidate, gain[:, sources:]))
        offered, gain = (xp.concatenate(both, axis=1) for both in zip(stay, move, strict=True))
        return self.towards(batch, gain, offered, draws.source, radius)
