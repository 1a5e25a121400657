"""Settings of an agent for one environment, searched for by Optuna.

A search is a file, to which every trial is written: stopped at any instant, it goes on. The first
trial is the configuration as it is, so that what is found is never worse than it on these seeds.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from ottrpo.core.checks import NonFiniteError, require
from ottrpo.names import one_line
from ottrpo.persistence.bundle import read_plain

from .run import build_agent, plan_run
from .spec import RunSpec

SPACES = Path(__file__).parent / "search.toml"
RUNGS = 8  # evaluations of a trial; the last two are its score
SCORED = 2
EPISODES = 5
WARM_UP = 4  # trials before any is pruned
MAX_STORAGE = 2**26  # some 100,000 trials
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched for.

    Attributes:
        environment: a Gymnasium id.
        agent: whose settings.
        config: the configuration to start from.
        steps: of a trial.
        seeds: that every trial is trained with, from ``seed`` on.
        seed: the first, and that of the search itself.
    """

    environment: str
    agent: str = "ottrpo"
    config: str = "default"
    steps: int
    seeds: int = 1
    seed: int = 0

    def spec(self, settings: Mapping[str, Any], seed: int) -> RunSpec:
        """A run with these settings over the configuration's."""
        return plan_run(
            self.environment,
            agent=self.agent,
            config=self.config,
            seed=seed,
            steps=self.steps,
            settings=settings,
        )


def open_search(search: Search, storage: Path) -> optuna.Study:
    """The search in the file ``storage``, begun or gone on with.

    Raises:
        ValueError: if the file holds another search, or the agent has nothing to search for.
    """
    space_of(search)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage.parent.mkdir(parents=True, exist_ok=True)
    study = _study(storage)
    asked, held = asdict(search), study.user_attrs.get("search")
    require(
        held in (None, asked),
        f"{storage} is of another search: {held}; give another --storage, or the same options",
    )
    study.set_user_attr("search", asked)
    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(left.number, state=TrialState.FAIL)  # somebody stopped it
    study.sampler = optuna.samplers.TPESampler(seed=search.seed + len(study.trials))
    return study


def _study(storage: Path) -> optuna.Study:
    try:
        if storage.exists():
            read_plain(storage, MAX_STORAGE)  # a pipe would be waited for, and zeros read for ever
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(storage))),
            study_name="search",
            load_if_exists=True,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=WARM_UP, n_warmup_steps=1),
        )
    except OSError:
        raise
    except Exception as error:  # what nonsense raises can't be known
        raise ValueError(f"{storage} can't be read as a search: {one_line(error)}") from error


def space_of(search: Search) -> dict[str, dict[str, Any]]:
    """What is tried for the agent of the search."""
    key = search.spec({}, search.seed).agent_key
    spaces = tomllib.loads(SPACES.read_text(encoding="utf-8"))
    require(
        key in spaces, f"nothing is known to tune of {search.agent}; known: {', '.join(spaces)}"
    )
    space: dict[str, dict[str, Any]] = spaces[key]
    return space


def ended(study: optuna.Study) -> int:
    """Trials that were trained to the end, or pruned."""
    return len(study.get_trials(deepcopy=False, states=ENDED))


def tune(
    search: Search,
    study: optuna.Study,
    trials: int,
    tell: Callable[[optuna.trial.FrozenTrial], None],
) -> None:
    """Make trials until so many have ended, and ``tell`` of each."""
    space = space_of(search)

    def objective(trial: optuna.Trial) -> float:
        settings: dict[str, Any] = {}
        if _unchanged(study) is not None:
            settings = {key: _drawn(trial, key, domain) for key, domain in space.items()}
        trial.set_user_attr("settings", settings)
        scores = [
            _score(search.spec(settings, search.seed + i), trial if i == 0 else None)
            for i in range(search.seeds)
        ]
        return fmean(scores)

    remaining = trials - ended(study)
    if remaining > 0:
        # settings that are refused together, or lead to numbers that are none, fail by themselves
        study.optimize(
            objective,
            n_trials=remaining,
            catch=(ValueError, NonFiniteError),
            callbacks=[lambda _, trial: tell(trial)],
        )


def outcome(study: optuna.Study) -> str:
    """The best score, and that of the configuration itself.

    Raises:
        ValueError: if no trial was trained to the end.
    """
    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    require(bool(whole), "no trial was trained to the end: nothing was found; see its settings")
    first = _unchanged(study)
    own = "failed" if first is None else f"{first.value:,.2f}"
    return f"best {study.best_value:,.2f} in trial {study.best_trial.number}, unchanged {own}"


def settings_file(search: Search, study: optuna.Study) -> str:
    """The best settings as a configuration file that ``ottrpo train --config FILE`` takes."""
    found = study.best_trial.user_attrs["settings"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in found.items()]
    environment = search.spec({}, search.seed).environment
    about = f"by ottrpo tune: {outcome(study)}, {search.steps:,} steps, {ended(study)} trials"
    head = [f"description = {json.dumps(about)}", f"extends = {json.dumps(search.config)}", ""]
    return "\n".join([*head, f"[environments.{json.dumps(environment)}]", *lines, ""])


def _unchanged(study: optuna.Study) -> optuna.trial.FrozenTrial | None:
    """The trial of the configuration as it is, once it was trained to the end."""
    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((trial for trial in whole if trial.user_attrs["settings"] == {}), None)


def _drawn(trial: optuna.Trial, key: str, domain: Mapping[str, Any]) -> Any:
    if "choices" in domain:
        return trial.suggest_categorical(key, domain["choices"])
    value = trial.suggest_float(key, domain["low"], domain["high"], log=domain.get("log", False))
    return domain["as"].format(value) if "as" in domain else float(f"{value:.4g}")


def _score(spec: RunSpec, trial: optuna.Trial | None) -> float:
    """The mean return at the end of a training, which ``trial`` may end before."""
    agent = build_agent(spec)
    returned: list[float] = []

    def after_update(agent: Any) -> bool:
        while len(returned) < RUNGS and agent.num_timesteps * RUNGS >= spec.steps * (
            len(returned) + 1
        ):
            returned.append(_evaluated(agent, len(returned)))
            if trial is not None:
                trial.report(returned[-1], len(returned))
                if trial.should_prune():
                    raise optuna.TrialPruned
        return True

    with agent.telling(after_update):
        agent.learn(spec.steps)
    while len(returned) < RUNGS:
        returned.append(_evaluated(agent, len(returned)))
    return fmean(returned[-SCORED:])


def _evaluated(agent: Any, rung: int) -> float:
    return float(agent.evaluate(EPISODES, deterministic=True, seed=1_000_000 + rung).mean())
