"""How large each install is and how long it takes, from a clean environment; minutes each.

``python -m tests.installs FILE [EXTRA ...]`` measures the extras that are named, or all of them
(``core`` is none of them), with the Python that runs it and nothing cached, and writes what it saw
into FILE after each. Versions are those of constraints.txt; what is at odds with them takes what
there is, but for torch, of which the pinned version is the CPU's.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from ottrpo.experiments.provenance import hardware
from tests.lock import write_versions

ROOT = Path(__file__).parent.parent
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = ("test", "dev")  # who works on the library itself
    return ["core", *(x for x in project["optional-dependencies"] if x not in ours)]


def call(*command, check=True):
    done = subprocess.run(command, env=CLEAN, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(done.stderr)
    return done


def measured(extra, source, constraints):
    """Bytes, seconds and packages; None if the versions don't go together."""
    what = source if extra == "core" else f"{source}[{extra}]"
    with tempfile.TemporaryDirectory() as folder:
        call(sys.executable, "-m", "venv", folder)
        pip = [f"{folder}/bin/python", "-m", "pip"]
        began = time.perf_counter()
        done = call(*pip, "install", "--no-cache-dir", "-c", constraints, what, check=False)
        seconds = time.perf_counter() - began
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
        return {
            "bytes": int(call("du", "--summarize", "--block-size=1", folder).stdout.split()[0]),
            "seconds": round(seconds, 1),
            "packages": len(json.loads(call(*pip, "list", "--format=json").stdout)),
            "consistent": call(*pip, "check", check=False).returncode == 0,
        }


def main(target, *asked):
    target = Path(target)
    told = json.loads(target.read_text()) if target.exists() else {"installs": {}}
    told |= {
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "hardware": hardware(),
    }
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/source"
        pins, torch_alone = (Path(folder) / name for name in ("pins.txt", "torch.txt"))
        call("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", source)
        write_versions(pins)
        (pin,) = (x for x in pins.read_text().splitlines() if x.startswith("torch=="))
        torch_alone.write_text(pin + "\n")
        for extra in asked or extras():
            found = measured(extra, source, str(pins))
            if found is None:
                found = measured(extra, source, str(torch_alone))
                found = found and found | {"constraints": "torch alone"}
            told["installs"][extra] = found
            print(extra, found, flush=True)
            target.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
