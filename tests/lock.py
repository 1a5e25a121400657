"""Writes constraints.txt anew: what each stage of the set-up installs, and the hashes of its files.

    make lock

Versions stay as they are in the file, so change them there first; what is newly needed comes in its
newest version. The hashes are those of all files, of any platform, that the indexes list with which
pip is configured. Of torch there are two builds: what stands for `cpu` and `cuda` is kept, with new
hashes.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
STAGES = {"core": ".", "deep": ".[deep]", "docs": ".[docs]", "test": ".[test,dev]"}
BUILDS = ("setuptools",)  # what the project itself is installed with
TOO_OLD = re.compile(r"-(cp2\d|cp3\d|cp310|pp\d+)-(?!abi3)")  # wheels of Pythons before 3.11
TORCH = ("cpu", "cuda")  # either, where torch is needed
HEADER = """\
# The exact versions that results are made with (Python 3.11, Linux), by the stages of the set-up
# that need them, and the SHA-256 of their files on any platform: pip installs no other. Where torch
# is needed it is that of `cpu`, or, if no index has it, that of `cuda` with its libraries.
# Written by `make lock`; pyproject.toml holds the wide bounds.
"""
LINUX = ' ; sys_platform == "linux"'


class Pin(NamedTuple):
    name: str
    version: str
    stages: tuple[str, ...]
    hashes: tuple[str, ...] = ()


def plain(name):
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(text):
    """The pins of a lock file."""
    pins, stages = [], ()
    for line in text.splitlines():
        line = line.removesuffix(" \\").removesuffix(LINUX)
        if line.startswith("# for "):
            stages = tuple(line.split()[2:])
        elif pinned := re.fullmatch(r"([\w.-]+)==([\w.+]+)", line):
            pins.append(Pin(plain(pinned[1]), pinned[2], stages))
        elif hashed := re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})", line):
            pins[-1] = pins[-1]._replace(hashes=(*pins[-1].hashes, hashed[1]))
        elif line and not line.startswith("# "):
            raise ValueError(f"neither a pin nor a hash: {line}")
    return pins


def written(pins):
    """The text of a lock file: those of many stages first."""
    text = HEADER
    for stages in sorted({pin.stages for pin in pins}, key=lambda stages: (-len(stages), stages)):
        text += f"\n# for {' '.join(stages)}\n"
        for pin in sorted(pin for pin in pins if pin.stages == stages):
            where = LINUX if stages == ("cuda",) and pin.name != "torch" else ""
            lines = (f"{pin.name}=={pin.version}{where}", *pin.hashes)
            text += " \\\n    --hash=sha256:".join(lines) + "\n"
    return text


def write_versions(path):
    """The versions alone, as pip's `--constraint` wants them where hashes can't be asked for.

    Hashes there would be demanded of everything that is installed, of a wheel of the project too.
    """
    pins = [pin for pin in read(LOCK.read_text()) if pin.stages != ("cpu",)]
    path.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins))


def resolved(project):
    """The versions that pip would install for a stage."""
    with tempfile.TemporaryDirectory() as folder:
        versions, report = Path(folder) / "versions.txt", Path(folder) / "report.json"
        write_versions(versions)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        pip += ["--report", str(report), "--constraint", str(versions), *BUILDS, project]
        subprocess.run(pip, check=True, cwd=ROOT)
        found = json.loads(report.read_text())["install"]
    return {plain(one["metadata"]["name"]): one["metadata"]["version"] for one in found}


def listed(names):
    """The files of every package, as pip's indexes list them: name, and links."""
    # no interface of pip's, but it knows how and where pip is told to look
    from pip._internal.commands import create_command
    from pip._internal.index.collector import parse_links

    command = create_command("download")
    options, _ = command.parse_args(["all"])
    with command.main_context():
        finder = command._build_package_finder(options, command.get_default_session(options))
        collector = finder._link_collector
        for name in names:
            sources = collector.collect_sources(name, candidates_from_page=lambda link: ())
            links = []
            for source in filter(None, (*sources.find_links, *sources.index_urls)):
                links += source.file_links()
                page = source.link and collector.fetch_response(source.link)
                links += parse_links(page) if page else ()
            yield name, links


def version_of(filename):
    """The version that a wheel or a source distribution says it has; None of other files."""
    from pip._vendor.packaging import utils

    parse = utils.parse_wheel_filename if filename.endswith(".whl") else utils.parse_sdist_filename
    try:
        return parse(filename)[1]
    except ValueError:
        return None


def hashes(links, version):
    """SHA-256 of the files of a version that a Python of today can use."""
    found = set()
    for link in links:
        of_file = version_of(link.filename)
        if str(of_file) != version or TOO_OLD.search(link.filename):
            continue
        if link.is_file:
            found.add(hashlib.sha256(Path(link.file_path).read_bytes()).hexdigest())
        elif link.hash_name == "sha256":
            found.add(link.hash)
    return tuple(sorted(found))


def main():
    """Ask pip what is needed and which files there are, and write it down."""
    pins = [pin for pin in read(LOCK.read_text()) if pin.stages[0] in TORCH]
    apart = {"ottrpo", *(pin.name for pin in pins)}
    versions, stages = {}, {}
    for stage, project in STAGES.items():
        needed = resolved(project)
        for name in needed.keys() - apart:
            versions[name] = needed[name]
            stages.setdefault(name, []).append(stage)
    pins += [Pin(name, versions[name], tuple(stages[name])) for name in versions]
    links = dict(listed(sorted({pin.name for pin in pins})))
    # where no index has the CPU build, its hashes stay
    pins = [pin._replace(hashes=hashes(links[pin.name], pin.version) or pin.hashes) for pin in pins]
    if bare := [pin.name for pin in pins if not pin.hashes]:
        raise SystemExit(f"no file found of {', '.join(bare)}")
    LOCK.write_text(written(pins))
    print(f"{len(pins)} packages, {sum(len(pin.hashes) for pin in pins)} files")


if __name__ == "__main__":
    main()
