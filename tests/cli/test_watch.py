"""Looking at agents: films are written without a screen, and what is missing is told."""

import imageio.v3 as imageio
import pytest

from ottrpo import OTTRPO, TabularOTTRPO
from ottrpo.agents.sb3 import PPO
from ottrpo.cli import main
from ottrpo.experiments import film
from ottrpo.experiments.trained import load_trained


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Agents of every kind, saved."""
    folder = tmp_path_factory.mktemp("agents")
    TabularOTTRPO("CliffWalking-v1", seed=0).learn(40_000).save(folder / "cliff")
    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).save(folder / "hopper")
    PPO("MlpPolicy", "Pendulum-v1", seed=0).save(folder / "pendulum")
    return folder


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("MUJOCO_GL", "egl")


@pytest.mark.parametrize("name", ["cliff", "hopper", "pendulum"])
def test_a_film_shows_the_episode(saved, tmp_path, capsys, name):
    video = tmp_path / "a-new-folder" / "film.gif"
    arguments = ["watch", str(saved / f"{name}.zip"), "--video", str(video), "--steps", "12"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert ", 12 steps at most\n" in told  # its return is not that of an episode
    assert f"written: {video}" in told
    frames = imageio.imread(video)
    assert frames.shape[0] >= 2
    assert frames[0].std() > 0  # something is to be seen
    assert (frames[0] != frames[-1]).any()  # and it moves


def test_a_film_runs_as_fast_as_the_environment(saved, tmp_path):
    video = tmp_path / "film.mp4"
    assert main(["watch", str(saved / "hopper.zip"), "--video", str(video), "--steps", "30"]) == 0
    told = imageio.immeta(video)
    assert told["fps"] == pytest.approx(125 / 3, rel=1e-2)  # every third frame of 125 a second
    assert told["size"] == (480, 480)


def test_the_camera_goes_along(saved, tmp_path):
    """Gymnasium's own stands still: a robot that has gone twenty metres was out of its sight."""
    trained = load_trained(saved / "hopper.zip")
    env = film.stage(trained, "rgb_array")
    env.reset(seed=0)
    here = env.render()
    state = env.unwrapped
    away = state.data.qpos.copy()
    away[0] += 20.0
    state.set_state(away, state.data.qvel)
    far = env.render()
    env.close()

    def robot(frame):  # the Hopper is brown: much red, little blue
        return int((frame[..., 0] > frame[..., 2] + 60.0).sum())

    assert robot(here) > 1000
    assert robot(far) == pytest.approx(robot(here), rel=0.05)


def test_a_film_is_as_wide_as_one_asks(saved, tmp_path):
    video = tmp_path / "film.mp4"
    arguments = ["watch", str(saved / "hopper.zip"), "--video", str(video), "--steps", "6"]
    assert main([*arguments, "--width", "250"]) == 0
    assert imageio.immeta(video)["size"] == (250, 250)


def test_what_is_watched_is_what_predict_does(saved, monkeypatch):
    trained = load_trained(saved / "cliff.zip")
    env = film.stage(trained, "rgb_array")
    play = film.play(trained, env, 2, 500, deterministic=True, seed=0, show=lambda env: None)
    assert list(play) == trained.agent.evaluate(2, deterministic=True).tolist()


def test_without_a_screen_a_window_is_refused_in_one_line(saved, capsys):
    assert main(["watch", str(saved / "hopper.zip")]) == 2
    assert capsys.readouterr().err == (
        "ottrpo: there is no screen to open a window on; give --video FILE.mp4 or .gif\n"
    )


def test_with_one_the_environment_draws_its_window(saved, monkeypatch, capsys):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # of pygame: a screen that nobody sees
    assert main(["watch", str(saved / "pendulum.zip"), "--steps", "3"]) == 0
    assert "return -" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--video", "film.avi"], "film.avi must end in .mp4 or .gif"),
        (["--video", "film.gif", "--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["--video", "film.gif", "--width", "33"], "--width must be even, from 16 to 4096 pixels"),
        (["--video", "/dev/null/folder/film.gif"], "/dev/null/folder: Not a directory"),
        (["--video", "/proc/film.gif"], "/proc/film.gif: "),  # takes no files
    ],
)
def test_mistakes_are_told_in_one_line(saved, options, told, capsys):
    assert main(["watch", str(saved / "pendulum.zip"), *options]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1


def test_a_driver_that_fails_is_told_in_one_line(saved, tmp_path, monkeypatch, capsys):
    def broken(env):
        raise RuntimeError("no EGL\nanywhere")

    monkeypatch.setattr("gymnasium.envs.mujoco.MujocoEnv.render", broken)
    video = str(tmp_path / "film.gif")
    assert main(["watch", str(saved / "hopper.zip"), "--video", video]) == 2
    assert capsys.readouterr().err == (
        "ottrpo: Hopper-v5 can't be drawn: no EGL anywhere (MUJOCO_GL=egl; without a screen MuJoCo "
        "draws by egl or osmesa)\n"
    )
