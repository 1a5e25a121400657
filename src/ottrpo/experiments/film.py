"""A trained agent at play, for people to look at: in a window, or as a film."""

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from ottrpo.core.checks import require
from ottrpo.extras import remedy

from .trained import Trained

# ending -> frames per second that are enough; of an environment that gives more, some are left out
FORMATS = {".mp4": 60, ".gif": 25}
DEFAULT_RATE = 30  # of environments that don't say how fast they are
Show = Callable[[Any], None]


def draw_without_screen() -> None:
    """Let MuJoCo and pygame draw into memory where there is no screen; before they are imported."""
    if not has_screen():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ["SDL_VIDEODRIVER"] = "dummy"


def has_screen() -> bool:
    """Whether a window can be opened."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))


def stage(trained: Trained, render_mode: str) -> Any:
    """The environment that ``trained`` was trained in, made to be looked at.

    Raises:
        ValueError: if it can't be drawn so.
    """
    env = trained.agent.fresh_env(render_mode=render_mode)
    known = env.metadata.get("render_modes") or ["none"]
    require(
        render_mode in known,
        f"{trained.environment} can't be drawn as {render_mode}; it knows {', '.join(known)}",
    )
    _follow(env.unwrapped)
    return env


def _follow(env: Any) -> None:
    """Look through the model's camera that goes along, unless another was asked for.

    Gymnasium 1.4 finds it and then takes one that stands still, out of whose sight robots run.
    """
    renderer = getattr(env, "mujoco_renderer", None)
    if renderer is None or env.camera_id is not None or env.camera_name is not None:
        return
    from mujoco import mj_name2id, mjtCamera, mjtObj

    camera = mj_name2id(env.model, mjtObj.mjOBJ_CAMERA, "track")
    if camera >= 0:
        fixed = {"type": mjtCamera.mjCAMERA_FIXED, "fixedcamid": camera}  # of windows
        renderer.camera_id, renderer.default_cam_config = camera, fixed


def play(
    trained: Trained,
    env: Any,
    episodes: int,
    steps: int,
    *,
    deterministic: bool,
    seed: int,
    show: Show,
) -> Iterator[float]:
    """Play in ``env``, of `stage`, and show it after every step; the return of each episode.

    An episode has so many ``steps`` at most: there are policies that stand still.
    """
    for episode in range(episodes):
        with _drawing(env):  # in a window environments draw themselves
            observation, _ = env.reset(seed=seed if episode == 0 else None)
        show(env)
        total, done, taken = 0.0, False, 0
        while not done and taken < steps:
            masks = _masks(trained, env)
            action, _ = trained.agent.predict(observation, deterministic=deterministic, **masks)
            observation, reward, terminated, truncated, _ = env.step(action)
            show(env)
            total, done, taken = total + float(reward), terminated or truncated, taken + 1
        yield total


@contextmanager
def filmed(path: Path, env: Any, width: int | None = None) -> Iterator[Show]:
    """A film in ``path`` of whatever is shown; it runs as fast as the environment, of `stage`.

    Its width is in pixels; by default it is as the environment draws.

    Raises:
        ValueError: if frames can't be drawn, with what is missing.
    """
    import imageio

    ending = path.suffix.lower()
    rate = float(env.metadata.get("render_fps") or DEFAULT_RATE)
    every, count = math.ceil(rate / FORMATS[ending]), 0
    options: dict[str, Any] = {"fps": rate / every, "macro_block_size": 2}  # H.264 wants even sides
    if ending == ".gif":  # which counts milliseconds, and in steps of ten
        options = {"duration": 10 * round(100 * every / rate), "loop": 0}
    warnings.filterwarnings("ignore", message="os.fork")  # ffmpeg is started, and JAX warns of it
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("ab").close()  # a place that takes no files: imageio would complain at length
    writer: Any = imageio.get_writer(path, **options)
    with writer as film:

        def show(env: Any) -> None:
            nonlocal count
            if count % every == 0:
                with _drawing(env):
                    frame = env.render()
                film.append_data(frame if width is None else _scaled(frame, width))
            count += 1

        yield show


def _scaled(frame: Any, width: int) -> Any:
    """A frame of that width, and of an even height, as H.264 wants it."""
    import numpy as np
    from PIL import Image  # imageio brings it

    height, of_old = frame.shape[:2]
    size = width, max(2, 2 * round(width * height / of_old / 2))
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS))


@contextmanager
def _drawing(env: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # drivers, libraries and environments fail here in all ways
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        backend = os.environ.get("MUJOCO_GL")
        hint = f" (MUJOCO_GL={backend}; without a screen MuJoCo draws by egl or osmesa)"
        reason = remedy(error) or f"{error or type(error).__name__}{hint if backend else ''}"
        raise ValueError(f"{name} can't be drawn: {' '.join(reason.split())}") from error


def _masks(trained: Trained, env: Any) -> dict[str, Any]:
    takes = "action_masks" in signature(trained.agent.predict).parameters
    if not takes or not env.has_wrapper_attr("action_masks"):
        return {}
    return {"action_masks": env.get_wrapper_attr("action_masks")()}
