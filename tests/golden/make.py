"""Write the golden values anew, for a change that is meant to change bits.

    python -m tests.golden.make [NAME ...]

With names only those cases are made anew; the machine must then be the one of the others.
"""

import json
import sys

from .cases import CASES, VALUES, machine, outcome


def main(names: list[str]) -> None:
    """Train the named cases, or all, and write what they came to."""
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        sys.exit(f"{unknown[0]!r} is not a case; known: {', '.join(CASES)}")
    cases = {}
    if names:
        kept = json.loads(VALUES.read_text())
        if kept["machine"] != machine():
            sys.exit("the other values were made on another machine; make all of them anew")
        cases = kept["cases"]
    for name in names or CASES:
        cases[name] = outcome(CASES[name])._asdict()
    lines = [f"{json.dumps(name)}: {json.dumps(cases[name])}" for name in CASES if name in cases]
    inside = ",\n".join(lines)  # a line for each, so that a difference names them
    VALUES.write_text(f'{{"machine": {json.dumps(machine())},\n"cases": {{\n{inside}\n}}}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
