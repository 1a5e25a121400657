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

    Raises:
        ValueError: if there is no such protocol.
    """
    require_one_of(name, PROTOCOLS, "a protocol")
    return PROTOCOLS[name](finite=finite)


def paper_protocol(*, finite: bool) -> Protocol:
    """Ten episodes an evaluation: 100 evaluations of finite problems, with sampled actions.

    Continuous problems, where an episode is dear, are evaluated at every 5 % up to 90 % and at
    every 1 % after it, with and without the policy's noise.
    """
    if finite:
        every = tuple(range(1, 101))
        return Protocol(name="paper", episodes=10, percents=every, deterministic=(False,))
    percents = (*range(5, 91, 5), *range(91, 101))
    return Protocol(name="paper", episodes=10, percents=percents, deterministic=(True, False))


def quick_protocol(*, finite: bool) -> Protocol:
    """Two episodes, four times: for trials, whose scores nobody reads."""
    ways = (False,) if finite else (True, False)
    return Protocol(name="quick", episodes=2, percents=(25, 50, 95, 100), deterministic=ways)


def device_protocol(*, finite: bool) -> Protocol:
    """For environments on a device, where many episodes take as long as one: few evaluations."""
    percents = (*range(10, 91, 10), 95, 100)
    return Protocol(name="device", episodes=64, percents=percents, deterministic=(True, False))


PROTOCOLS = {"paper": paper_protocol, "quick": quick_protocol, "device": device_protocol}
