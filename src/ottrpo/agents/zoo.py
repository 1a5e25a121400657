"""OT-TRPO inside RL-Zoo: train, enjoy and tune it with the Zoo's own commands.

    python -m ottrpo.agents.zoo train --algo ottrpo --env Hopper-v5
    python -m ottrpo.agents.zoo enjoy --algo ottrpo --env Hopper-v5 -f logs
    python -m ottrpo.agents.zoo train --algo ottrpo --env Hopper-v5 -optimize --n-trials 50

In a script of one's own, ``import ottrpo.agents.zoo as zoo; zoo.register()`` is enough. The Zoo is
an extra of this library: ``pip install 'ottrpo[zoo]'``.
"""

import sys
from collections.abc import Callable
from typing import Any

from ..core.checks import Refused

# what the Zoo reads with ``-conf ottrpo.agents.zoo``: our defaults for every environment
hyperparams: dict[str, dict[str, Any]] = {
    "default": {"policy": "MlpPolicy", "n_timesteps": 1e6},
    "MountainCarContinuous-v0": {"policy": "MlpPolicy", "n_timesteps": 150_000},
}


def register() -> None:
    """Put OTTRPO into the Zoo's tables of algorithms, of search spaces and of their meaning."""
    try:
        import rl_zoo3
        from rl_zoo3 import hyperparams_opt
    except ImportError as error:
        raise _missing(error) from error
    from .ottrpo import OTTRPO

    rl_zoo3.ALGOS["ottrpo"] = OTTRPO
    hyperparams_opt.HYPERPARAMS_SAMPLER["ottrpo"] = sample
    hyperparams_opt.HYPERPARAMS_CONVERTER["ottrpo"] = settings_of


def _missing(error: ImportError) -> ImportError:
    """What to install: the Zoo itself, or what it imports without asking for it."""
    name = (error.name or "rl_zoo3").partition(".")[0]
    if name == "rl_zoo3":
        return ImportError("RL-Zoo is not installed: pip install 'ottrpo[zoo]'")
    return ImportError(f"RL-Zoo can't be imported without {name}: pip install {name} ({error})")


def sample(trial: Any, n_actions: int, n_envs: int, additional_args: Any) -> dict[str, Any]:
    """Draw settings in an Optuna trial."""
    drawn = {
        "radius_percent": trial.suggest_float("radius_percent", 3.0, 100.0, log=True),
        "log_std_init": trial.suggest_float("log_std_init", -2.0, 0.0),
        "gamma": trial.suggest_categorical("gamma", ["auto", 0.98, 0.99, 0.995, 0.999]),
        "gae_lambda": trial.suggest_categorical("gae_lambda", [0.9, 0.95, 0.98]),
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-3, log=True),
        "n_steps_power": trial.suggest_int("n_steps_power", 8, 12),
        "batch_size_power": trial.suggest_int("batch_size_power", 5, 8),
        "activation_fn": trial.suggest_categorical("activation_fn", ["tanh", "relu"]),
    }
    return settings_of(drawn)


def settings_of(drawn: dict[str, Any]) -> dict[str, Any]:
    """The constructor's keywords for what a trial drew.

    >>> settings_of({"radius_percent": 30.0, "n_steps_power": 11, "gamma": 0.99})
    {'gamma': 0.99, 'radius': '30.0%', 'n_steps': 2048}
    """
    derived: dict[str, Callable[[Any], tuple[str, Any]]] = {
        "radius_percent": lambda percent: ("radius", f"{percent}%"),
        "n_steps_power": lambda power: ("n_steps", 2**power),
        "batch_size_power": lambda power: ("batch_size", 2**power),
    }
    of_policy = {k: drawn[k] for k in ("log_std_init", "activation_fn") if k in drawn}
    settings = {k: v for k, v in drawn.items() if k not in derived and k not in of_policy}
    settings |= dict(derived[k](v) for k, v in drawn.items() if k in derived)
    return settings | ({"policy_kwargs": of_policy} if of_policy else {})


def main() -> None:
    """Hand over to the Zoo's ``train`` or ``enjoy``, with our settings unless others are given."""
    try:
        register()
    except ImportError as error:
        sys.exit(str(error))
    from rl_zoo3 import enjoy, train

    verbs = {"train": train.train, "enjoy": enjoy.enjoy}
    verb = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if verb not in verbs:
        sys.exit("usage: python -m ottrpo.agents.zoo train|enjoy --algo ottrpo --env ID ...")
    given = {"-conf", "--conf-file"} & set(sys.argv)
    if verb == "train" and "ottrpo" in sys.argv and not given:
        sys.argv += ["-conf", "ottrpo.agents.zoo"]
    try:
        verbs[verb]()
    except Refused as refusal:  # a key of a file or of --hyperparams
        sys.exit(str(refusal))


if __name__ == "__main__":
    main()
