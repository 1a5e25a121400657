"""One gate to the terminal: whoever wrote the names in a file, the terminal is not theirs."""

import io
import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottrpo import terminal
from ottrpo.cli import main
from ottrpo.experiments.spec import RunSpec
from ottrpo.results.run_directory import RunDirectory
from ottrpo.terminal import json_alone, say, say_json, screen, shown

from .reports.synthetic import cell, write_study

# colours, a cleared screen, a new title, a link, text that runs from right to left
COMMANDS = "\x1b[31mred\x1b[2J\x1b]0;title\x07\x9b1m\u202eesrever\x1b]8;;https://x\x1b\\"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e")


def obeyed(text):
    return [sign for sign in OBEYED if sign in text]


def test_what_a_terminal_would_obey_is_shown(capsys):
    assert obeyed(shown(COMMANDS)) == []
    assert shown("a\tb\nλ* – Übung 漢字") == "a\tb\nλ* – Übung 漢字"
    say(COMMANDS, error=True)
    assert r"\x1b[31mred\x1b[2J\x1b]0;title\x07\x9b1m\u202eesrever" in capsys.readouterr().err


def test_what_an_error_quotes_does_not_flood_the_terminal(capsys):
    say(f"in.toml: {'k' * 1_000_000}; known: steps\nshort", error=True)
    first, second, _ = capsys.readouterr().err.split("\n")
    assert len(first) < 2_100
    assert first.startswith("in.toml: kkk")
    assert first.endswith("k; known: steps")
    assert second == "short"


def test_tables_keep_their_shape():
    console = screen(file=io.StringIO(), width=100)
    table = Table("name", "number")
    for name in (COMMANDS, "plain"):
        table.add_row(Text(name), "1")
    console.print(table)
    text = console.file.getvalue()
    assert obeyed(text) == []
    assert len({len(line) for line in text.splitlines()}) == 1


def test_colours_of_our_own_are_commands_still():
    console = screen(file=io.StringIO(), force_terminal=True, width=80)
    console.print(f"ours {COMMANDS}", style="red")
    assert console.file.getvalue().count("\x1b[31m") == 1  # rich's, and not the text's


@pytest.fixture
def hostile(tmp_path):
    """A run and results whose every name is a command."""
    protocol = {"name": "quick", "episodes": 1, "percents": [100], "deterministic": [False]}
    run = RunDirectory.create(
        tmp_path / "run",
        {
            **{field.name: COMMANDS for field in fields(RunSpec)},
            "protocol": protocol,
            "environment": f"Hopper{COMMANDS}",
            "agent": f"agent{COMMANDS}",
            "config": COMMANDS,
            "seed": 0,
            "steps": 100,
            "resolved": {"radius": COMMANDS, COMMANDS: 1},
        },
    )
    run.log_evaluation({"mark": 100, "deterministic": False, "returns": [1.0]})
    cells = {"cell": cell(f"Hopper{COMMANDS}", agent=f"agent{COMMANDS}", label=COMMANDS)}
    write_study(tmp_path / "results" / "mine", cells, study=COMMANDS, description=COMMANDS)
    study = tmp_path / "study.toml"
    name = json.dumps(COMMANDS)
    study.write_text(f"description = {name}\n[[cells]]\nenvironments = [{name}]\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--results", "{0}/results"],
        ["report", f"mine{COMMANDS}", "--results", "{0}/results"],
        ["compare", "{0}/run", "{0}/run"],
        ["compare", f"mine:{COMMANDS}", "mine:cell", "--results", "{0}/results"],
        ["evaluate", "{0}/run"],
        ["resume", "{0}/run"],
        ["reproduce", "{0}/study.toml"],
        [COMMANDS],
        ["train", COMMANDS],
    ],
)
def test_no_verb_lets_them_through(hostile, arguments, capfd, monkeypatch):
    monkeypatch.chdir(hostile)
    assert main([text.format(hostile) for text in arguments]) in (0, 2)
    told = capfd.readouterr()
    assert obeyed(told.out + told.err) == []
    assert r"\x1b" in told.out + told.err


def test_json_is_json_whatever_else_is_printed(capsys):
    with json_alone(True):
        print("Using cpu device")
        say("a word")
        say_json({"a": 1})
    told = capsys.readouterr()
    assert json.loads(told.out) == {"a": 1}
    assert told.err == "Using cpu device\na word\n"
    with pytest.raises(ValueError, match="JSON"):
        say_json(float("nan"))


@pytest.mark.parametrize(("columns", "width"), [("72", 72), (None, 400)])
def test_the_width_is_the_terminal_s_and_a_file_has_none(columns, width, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert screen().width == width


def test_a_bar_is_for_terminals_alone(monkeypatch, capsys):
    with terminal.bar("episodes", 3) as after:
        after()
    assert capsys.readouterr() == ("", "")
    shown_at = io.StringIO()
    wide = Console(file=shown_at, force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "screen", lambda: wide)
    with terminal.bar("episodes", 3) as after:
        after()
        after()
    assert "episodes" in shown_at.getvalue()
    assert "2/3" in shown_at.getvalue()


def test_an_alphabet_that_lacks_a_letter_stops_nothing(tmp_path):
    """Every verb tells λ, ± and arrows; under LC_ALL=C without UTF-8 that was a traceback."""
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for verb in (["list"], ["train", "CliffWalking-v1", "--steps", "1000", "--out", "run"]):
        main = "import sys; from ottrpo.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", main, *verb]
        done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert b"?" in done.stdout
