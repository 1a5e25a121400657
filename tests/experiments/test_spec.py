import time
from typing import Any, Literal

import pytest

from ottrpo.experiments.spec import (
    configuration_names,
    merge,
    parse_overrides,
    read_configuration,
    read_toml,
    require_types,
)

MANY = 100_000
CHAIN = ".".join(["a"] * MANY)


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("radius=0.4", {"radius": 0.4}),
        ("n=3", {"n": 3}),
        ("keep=true", {"keep": True}),
        ("target=max", {"target": "max"}),
        ('target="max"', {"target": "max"}),
        ("cost={kind = 'p-norm', p = 1}", {"cost": {"kind": "p-norm", "p": 1}}),
        ('cost={"kind": "p-norm", "p": 1}', {"cost": {"kind": "p-norm", "p": 1}}),
        ('x={"a": {"b": [1, {"c": "d"}]}}', {"x": {"a": {"b": [1, {"c": "d"}]}}}),
        ("cost=[[0, 1], [2, 0]]", {"cost": [[0, 1], [2, 0]]}),
        ("policy_kwargs.net_arch=[64, 64]", {"policy_kwargs": {"net_arch": [64, 64]}}),
        ('name=C:\\a "b"', {"name": 'C:\\a "b"'}),
        ("equation=a=b", {"equation": "a=b"}),
    ],
)
def test_overrides_are_toml_and_bare_words_are_strings(text, expected):
    assert parse_overrides([text]) == expected


@pytest.mark.parametrize("text", ["radius", "=3", "", "two words=1", "a b", "x\ny=1\nz=2"])
def test_what_is_no_override_is_refused(text):
    with pytest.raises(ValueError, match="override"):
        parse_overrides([text])


def test_later_overrides_win_and_tables_grow():
    assert parse_overrides(["a=1", "t.x=1", "t.y=2", "a=2"]) == {"a": 2, "t": {"x": 1, "y": 2}}


def test_merge_leaves_its_arguments_alone():
    under, over = {"t": {"a": 1}}, {"t": {"b": 2}}
    assert merge(under, over) == {"t": {"a": 1, "b": 2}}
    assert (under, over) == ({"t": {"a": 1}}, {"t": {"b": 2}})


def test_an_environment_overrides_and_extension_lies_under(tmp_path):
    write(
        tmp_path,
        default='steps = 10\n[settings]\na = 1\nb = 1\n[environments."E"]\nb = 2\nsteps = 20\n',
        other='extends = "default"\ndescription = "text"\n[settings]\na = 3\n',
    )
    other = read_configuration(tmp_path, "other")
    assert other.description == "text"
    assert other.settings_for("E") == {"a": 3, "b": 2}
    assert other.settings_for("F") == {"a": 3, "b": 1}
    assert (other.steps_for("E"), other.steps_for("F")) == (20, 10)
    assert configuration_names(tmp_path) == ["default", "other"]


def test_an_agent_without_files_has_its_own_defaults(tmp_path):
    assert configuration_names(tmp_path / "nothing") == ["default"]
    default = read_configuration(tmp_path / "nothing", "default")
    assert (default.settings_for("E"), default.steps_for("E")) == ({}, None)
    assert default.description


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("setings = 1", "unknown keys"),
        ("steps = ", "not valid TOML"),
        ('extends = "default"', "circle"),
        ("settings = 3", "tables"),
        ("environments = 3", "tables"),
        ("[environments]\nE = 3", "tables"),
        ("steps = 1.5", "positive whole number, got 1.5"),
        ('steps = "many"', "positive whole number, got 'many'"),
        ('[environments."E"]\nsteps = 0', "positive whole number, got 0"),
        ('extends = "nobody"', "not a configuration"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, complaint):
    write(tmp_path, default=text)
    with pytest.raises(ValueError, match=complaint):
        read_configuration(tmp_path, "default")


def test_an_unknown_configuration_is_refused_with_a_suggestion(tmp_path):
    write(tmp_path, default="", paper="")
    with pytest.raises(ValueError, match="did you mean 'paper'"):
        read_configuration(tmp_path, "papper")


KINDS = {"n": int, "x": float, "on": bool, "name": str, "way": Literal["up", "down"], "any": Any}


@pytest.mark.parametrize(
    "settings",
    [
        {"n": 3, "x": 0.5, "on": True, "name": "a", "way": "up", "any": [1]},
        {"x": 3},
        {"unannotated": "anything"},
    ],
)
def test_values_of_the_right_type_pass(settings):
    require_types(settings, KINDS)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n": 1.5}, "n must be a whole number, got 1.5"),
        ({"n": True}, "n must be a whole number, got True"),
        ({"x": "abc"}, "x must be a number, got 'abc'"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"name": 3}, "name must be a word, got 3"),
        ({"way": "left"}, "way must be one of 'up', 'down', got 'left'"),
    ],
)
def test_values_of_the_wrong_type_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        require_types(settings, KINDS)


@pytest.mark.parametrize(
    "text",
    [
        f"{CHAIN} = 1",
        f"[{CHAIN}]",
        f"x = {{{CHAIN} = 1}}",
        '"=".' * MANY + "a = 1",
        "',' . " * MANY + "a = 1",
        f'x = [""" """", {{{CHAIN} = 1}}]',
        f"x = [''' '''', {{{CHAIN} = 1}}]",
        f'# "\n{CHAIN} = 1',
    ],
)
def test_a_key_of_very_many_parts_is_refused_at_once(text, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    began = time.process_time()
    with pytest.raises(ValueError, match=r"a.toml is not valid TOML: a key has more than 64 parts"):
        read_toml(tmp_path / "a.toml", "study")
    assert time.process_time() - began < 2  # TOML's parser would take minutes


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{CHAIN}"',
        f"x = '''\n{CHAIN}'''",
        f"# {CHAIN}\nx = 1",
        f"x = [{'0.5, ' * 10_000}]",
        f"{'.'.join('a' * 60)} = 1",
    ],
)
def test_text_may_have_as_many_dots_as_it_likes(text, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    assert read_toml(tmp_path / "a.toml", "study")


@pytest.mark.parametrize("sign", ['"', "'", '\\"', '"""', "#", ". ", "a ", "a.", " "])
def test_looking_for_one_is_quick_whatever_the_text(sign, tmp_path):
    (tmp_path / "a.toml").write_text(f"x = {sign * (900_000 // len(sign))}")
    began = time.process_time()
    with pytest.raises(ValueError, match="not valid TOML"):
        read_toml(tmp_path / "a.toml", "study")
    assert time.process_time() - began < 5
