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

    What normalises observations and scales actions is inside. The file is written only if it does
    as the agent does, on 1,000 observations.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """what `ottrpo train` wrote, or a file that an agent was saved to"""
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
