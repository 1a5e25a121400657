"""``ottrpo train``."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ottrpo.terminal import say, screen

from .options import mistakes, refused, require_at_least, unbroken

if TYPE_CHECKING:
    from rich.console import Console

    from ottrpo.experiments.board import RunBoard
    from ottrpo.experiments.spec import RunSpec
    from ottrpo.experiments.training import Training
    from ottrpo.results.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent on an environment, evaluate it by the paper's protocol, and keep the run.

    Prints the score beside the one in the paper. The run directory holds manifest.json,
    metrics.jsonl, evaluations.jsonl, a picture of the learning curve and the trained agent.
    SIGTERM and Ctrl-C save everything before the end; `ottrpo resume` continues the run.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """a Gymnasium id (retired ids of the paper are translated, with a note), or an environment
    in JAX: brax:ant, brax:ant/mjx, gymnax:CartPole-v1, playground:CheetahRun"""
    agent: str = "ottrpo"
    """the agent; `ottrpo list` names them"""
    config: str | None = None
    """the name of one of the agent's configurations, or a .toml file of your own; by default
    `default`, or `device` for environments in JAX"""
    seed: int = 0
    """seed of everything that is random in training"""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """train this many seeds, from --seed on, in one program; for environments in JAX"""
    steps: int | None = None
    """environment steps; by default as in the configuration"""
    n_envs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """number of environments to train in, simulated together where possible"""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """threads of the physics, by default one per core; results do not depend on it"""
    set: Annotated[
        tuple[tuple[str, ...], ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="KEY=VALUE", help_behavior_hint=""),
    ] = ()
    """settings that replace those of the configuration, e.g. --set radius=0.02 cost=binary"""
    checkpoint_every: int | None = None
    """steps between checkpoints, from which `ottrpo resume` continues; 0 for none. By default
    50,000, or a twentieth of training for environments in JAX"""
    out: Path | None = None
    """the run directory; by default a new one under runs/"""

    def run(self) -> int:
        """Resolve, train, evaluate, tell."""
        from ottrpo.core.checks import require
        from ottrpo.envs import catalogue
        from ottrpo.experiments import run as runner
        from ottrpo.experiments.board import RunBoard
        from ottrpo.experiments.training import begin

        console = screen(soft_wrap=True)
        require_at_least(1, seeds=self.seeds)
        require_at_least(0, checkpoint_every=self.checkpoint_every)
        with mistakes():
            spec = self._spec()
            functional = runner.is_functional(spec.environment)
            told = "--seeds is for environments of JAX; see `reproduce`"
            require(self.seeds is None or functional, told)
            path = self.out or runner.default_directory(spec, Path("runs"))
            specs = [replace(spec, seed=spec.seed + i) for i in range(self.seeds or 1)]
            paths = [path / f"seed{each.seed}" for each in specs] if self.seeds else [path]
            watch = RunBoard(spec.steps, console)
            training = begin(specs, paths, self.checkpoint_every, watch, console.print)
        if translation := catalogue.translation(self.env):
            console.print(translation)
        several = f"seeds {spec.seed} to {specs[-1].seed}" if self.seeds else f"seed {spec.seed}"
        console.print(
            f"{spec.agent} ({spec.config}) on {spec.environment}, {several}, "
            f"{spec.steps:,} steps -> {path}"
        )
        if self.checkpoint_every != 0 and not training.directories[0].manifest["checkpoints"]:
            console.print(f"{spec.agent} has no checkpoints: interrupted, it starts again")
        return go_on(training, watch, console)

    def _spec(self) -> "RunSpec":
        """The run that was asked for, with the first seed."""
        from ottrpo.envs import functional
        from ottrpo.experiments.run import is_functional, plan_run
        from ottrpo.experiments.spec import parse_overrides

        if is_functional(self.env):
            functional.make(self.env)  # if its library is missing: that brings JAX too
        given = {"n_envs": self.n_envs, "threads": self.threads}  # options of their own
        own = [f"{name}={value}" for name, value in given.items() if value is not None]
        own_file = self.config is not None and self.config.endswith(".toml")
        return plan_run(
            self.env,
            agent=self.agent,
            config=Path(self.config or "") if own_file else self.config,
            seed=self.seed,
            steps=self.steps,
            settings=parse_overrides([*own, *(text for texts in self.set for text in texts)]),
        )


def go_on(
    training: "Training", watch: "RunBoard", console: "Console", *, resumed: bool = False
) -> int:
    """Train to the end, the directories locked, and tell the scores of each run; the exit code.

    Being asked to stop is no failure. What makes a run fail through no mistake of the program is
    told in one line, with what can be done about it.
    """
    from ottrpo.core.checks import NonFiniteError
    from ottrpo.experiments.run import Stopped, is_functional, spec_of
    from ottrpo.experiments.training import restore
    from ottrpo.persistence import bundle
    from ottrpo.persistence.lock import DirectoryLock

    first = training.directories[0].path
    with ExitStack() as held:
        with mistakes():
            for directory in training.directories:
                held.enter_context(DirectoryLock(directory.path))
            with bundle.interpreting(first):
                restore(training, console.print, resumed=resumed)
        try:
            with watch:
                training.go_on()
            for row, directory in enumerate(training.directories):
                spec = spec_of(directory.manifest)
                if is_functional(spec.environment):
                    console.print(f"seed {spec.seed}: {directory.path}")
                tell_scores(spec, directory, training.agent(row), console)
        except Stopped as stopped:
            console.print(str(stopped))
        except NonFiniteError as error:
            say(f"ottrpo: {unbroken(str(error))}", error=True)
            return 1
        except OSError as error:
            told = "what was saved before is whole, when there is room again: ottrpo resume"
            say(f"ottrpo: {refused(error, first)}; {told} {first}", error=True)
            return 1
    return 0


def tell_scores(spec: "RunSpec", directory: "RunDirectory", agent: Any, console: "Console") -> None:
    """Print the scores of a finished run beside the paper's, and draw its curve."""
    from ottrpo.envs import catalogue
    from ottrpo.experiments.protocol import LAST_TENTH
    from ottrpo.experiments.published import trained_score
    from ottrpo.reports.drawing import save_panels
    from ottrpo.reports.figures import run_panel
    from ottrpo.reports.statistics import trained_scores
    from ottrpo.results.reading import run_curves

    evaluations = directory.evaluations()
    paper = trained_score(spec.environment, spec.agent)
    for deterministic, curves in run_curves([directory]).items():
        count = int((curves.mark_t > LAST_TENTH * spec.steps).sum())
        if count:
            ours = trained_scores(curves.mark_t, curves.return_nt, spec.steps)
            kind = "deterministic" if deterministic else "sampled"
            console.print(
                f"score {ours.score_n[0]:,.2f} ± {ours.std_time:,.2f} over time ({kind} actions, "
                f"{count} evaluation{'s' * (count > 1)} of {spec.protocol.episodes} episodes in "
                "the last tenth)",
            )
    if paper is not None:
        console.print(f"paper {paper.score:,.0f} ± {paper.spread:,.0f}")
    grid = catalogue.grid(spec.environment)
    table = agent.get_parameters().get("policy")  # networks have none
    if grid is not None and table is not None:
        console.print("the most probable action in each state:")
        console.print(grid.drawn(table))
    picture = directory.path / "learning_curve.svg"
    save_panels([run_panel(evaluations, paper)], picture)
    console.print(f"learning curve: {picture}")
