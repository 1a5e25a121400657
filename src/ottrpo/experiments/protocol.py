"""When a run is evaluated, and which evaluations its score is of.

The paper averages evaluations of ten episodes over the last tenth of training. How often it
evaluated, and whether actions were sampled, it does not say; the choices here are ours.
"""

from dataclasses import dataclass

from ottrpo.core.checks import require_one_of

LAST_TENTH = 0.9


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """When and how a run is evaluated.

    Attributes:
        name: of the protocol.
        episodes: of one evaluation.
        percents: when to evaluate, in percent of training.
        deterministic: for each way to act, whether it takes the policy's mode; else it samples.
    """

    name: str
    episodes: int
    percents: tuple[int, ...]
    deterministic: tuple[bool, ...]

    def marks(self, steps: int) -> list[int]:
        """The steps at which to evaluate, ascending; the last one is the end of training."""
        return sorted({max(1, round(steps * percent / 100)) for percent in self.percents})


def protocol_named(name: str, *, finite: bool) -> Protocol:
    """The protocol ``name``, for finite problems or for others.

    Finite problems are evaluated with sampled actions, others also without the policy's noise.

    Raises:
        ValueError: if there is no such protocol.
    """
    require_one_of(name, PROTOCOLS, "a protocol")
    episodes, percents = PROTOCOLS[name]
    if finite and name == "paper":  # elsewhere an episode is dear
        percents = tuple(range(1, 101))
    ways = (False,) if finite else (True, False)
    return Protocol(name=name, episodes=episodes, percents=percents, deterministic=ways)


# name -> (episodes of an evaluation, when to evaluate, in percent of training)
PROTOCOLS = {
    "paper": (10, (*range(5, 91, 5), *range(91, 101))),
    "brief": (10, (25, 50, 75, 92, 96, 100)),  # for trainings that are shorter than evaluations
    "quick": (2, (25, 50, 95, 100)),  # for trials, whose scores nobody reads
    "device": (64, (*range(10, 91, 10), 95, 100)),  # there many episodes take as long as one
}
