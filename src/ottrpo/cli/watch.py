"""``ottrpo watch``."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ottrpo.terminal import bar, say

from .options import Mistake, Trust, mistakes, require_at_least

if TYPE_CHECKING:
    from ottrpo.experiments.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Watch a trained agent in a window, or write a film, which needs no screen."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the directory of a run, or the file of a saved agent"""
    video: Path | None = None
    """write a film, an .mp4 or .gif file, instead of opening a window"""
    width: int | None = None
    """width of the film in pixels, an even number; by default the environment's own"""
    episodes: int = 1
    """number of episodes"""
    steps: int = 1000
    """longest length of an episode"""
    sampled: bool = False
    """play sampled actions instead of the policy's mode"""
    seed: int = 0
    """seed of the environment"""
    trust: Trust = False

    def run(self) -> None:
        """Load, play, tell."""
        from ottrpo.experiments import film
        from ottrpo.experiments.trained import load_trained

        require_at_least(1, episodes=self.episodes, steps=self.steps)
        require_at_least(0, seed=self.seed)
        if self.video is None and not film.has_screen():
            raise Mistake("there is no screen to open a window on; give --video FILE.mp4 or .gif")
        if self.video is not None and self.video.suffix.lower() not in film.FORMATS:
            raise Mistake(f"{self.video} must end in {' or '.join(film.FORMATS)}")
        if self.width is not None and (self.width % 2 or not 16 <= self.width <= 4096):
            raise Mistake(f"--width must be even, from 16 to 4096 pixels, got {self.width}")
        film.draw_without_screen()
        with mistakes():
            returns = self._play(load_trained(self.path, trust=self.trust))
        over = f" over {len(returns)} episodes" if len(returns) > 1 else ""
        cut = "" if self.steps == Watch.steps else f", {self.steps:,} steps at most"
        say(f"return {fmean(returns):,.2f}{over}{cut}")
        if self.video is not None:
            say(f"written: {self.video}")

    def _play(self, trained: "Trained") -> list[float]:
        from ottrpo.experiments import film

        env = film.stage(trained, "human" if self.video is None else "rgb_array")
        play = partial(
            film.play,
            trained,
            env,
            self.episodes,
            self.steps,
            deterministic=not self.sampled,
            seed=self.seed,
        )
        try:
            if self.video is None:
                return list(play(show=lambda env: None))
            filming = film.filmed(self.video, env, self.width)
            with filming as show, bar("steps", self._frames(env)) as after:

                def keep(env: object) -> None:
                    show(env)
                    after()

                return list(play(show=keep))
        finally:
            env.close()

    def _frames(self, env: Any) -> int:
        """At most."""
        limit = env.spec.max_episode_steps if env.spec is not None else None
        return self.episodes * (1 + min(self.steps, limit or self.steps))
