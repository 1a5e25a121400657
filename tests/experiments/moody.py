"""The command line with nothing in the registry but the moody agent: ``python moody.py reproduce``.

The configurations are in the folder that MOODY_CONFIGS names.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def install():
    from ottrpo.threads import default_to_one_thread

    default_to_one_thread()  # before anything is loaded, as the command line does

    from ottrpo.experiments import registry

    entry = registry.AgentEntry(
        key="moody",
        name="moody",
        module="moody_agent",
        class_name="MoodyAgent",
        finite=True,
        description="has moods",
    )
    registry._AGENTS = (entry,)
    registry.CONFIGS = Path(os.environ["MOODY_CONFIGS"])


if __name__ in ("__main__", "__mp_main__"):  # the second: in a process of a run
    install()
if __name__ == "__main__":
    from ottrpo.cli import main

    sys.exit(main(sys.argv[1:]))
