"""Shells complete what the command line has."""

import shutil
import subprocess

import pytest

from ottrpo.cli import VERBS, main

TYPED = {
    "ottrpo tr": "train",
    "ottrpo train Hop": "Hopper-v5",
    "ottrpo train Hopper-v5 --ag": "--agent",
    "ottrpo train Hopper-v5 --n-e": "--n-envs",
    "ottrpo reproduce tabular-d": "tabular-default",
    "ottrpo report --qu": "--quiet",
    "ottrpo train Hopper-v5 --agent pp": "ppo",
    "ottrpo plot ottrpo ppo/t": "ppo/tuned",
}
ASK = """
{script}
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ottrpo; echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts():
    def script(shell):
        import contextlib
        import io

        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            assert main(["completion", shell]) == 0
        return told.getvalue()

    return {shell: script(shell) for shell in ("bash", "zsh", "fish")}


def asked(shell, *arguments):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", TYPED)
def test_bash(scripts, line, tmp_path):
    told = asked("bash", "-c", ASK.format(script=scripts["bash"], line=line))
    assert TYPED[line] in told.split()


@pytest.mark.parametrize("line", TYPED)
def test_fish(scripts, line):
    told = asked("fish", "--no-config", "-c", f"{scripts['fish']}\ncomplete -C '{line}'")
    assert TYPED[line] in [row.split("\t")[0] for row in told.splitlines()]


def test_zsh_reads_its_script(scripts):
    told = asked("zsh", "-f", "-c", f"{scripts['zsh']}\necho $_comps[ottrpo]")
    assert told.strip() == "_bash_complete -o filenames -F _ottrpo"


def test_every_option_of_every_verb_is_there(scripts, capsys):
    for verb in VERBS:
        assert f"    {verb}) " in scripts["bash"]
        assert f"-a {verb} " in scripts["fish"]
    (train,) = (row for row in scripts["bash"].splitlines() if row.startswith("    train)"))
    assert main(["train", "--help"]) == 0
    told = capsys.readouterr().out
    options = train.split('"')[1].split()
    assert all(option in told for option in options if option != "--quiet")
    assert "--env" not in options  # it has no name on the command line


def test_another_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
