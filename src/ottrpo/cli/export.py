"""``ottrpo export``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import say

from .options import Mistake, Trust, mistakes


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained policy as one ONNX file: raw observations in, the deterministic action out.

    The normaliser of observations and the scaling of actions are inside. The file is written only
    if its actions are those of the agent on 1,000 observations.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the directory of a run, or the file of a saved agent"""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY.onnx")]
    """the file to write"""
    trust: Trust = False

    def run(self) -> None:
        """Load, translate, compare, write."""
        if self.out.suffix != ".onnx":
            raise Mistake(f"{self.out} must end in .onnx")
        from ottrpo.agents.export import CHECKED, export
        from ottrpo.experiments.trained import load_trained

        with mistakes():
            difference = export(load_trained(self.path, trust=self.trust).agent, self.out)
        say(
            f"written: {self.out}, {self.out.stat().st_size / 1024:,.0f} KiB; on {CHECKED:,} "
            f"observations it differs from predict by at most {difference:.1g}"
        )
