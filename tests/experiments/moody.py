"""The command line and the worker with nothing in the registry but the moody agent.

``python moody.py reproduce ...`` or, as `ottrpo.experiments.local` calls it where it does not fork,
``python moody.py worker PARENT``. The configurations are in the folder that MOODY_CONFIGS names;
MOODY_START says whether processes start by ``fork``, as they do by themselves, or ``anew``.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def install():
    from ottrpo.threads import default_to_one_thread

    default_to_one_thread()  # before anything is loaded, as the command line does

    from ottrpo.experiments import estimate, local, registry

    entry = registry.AgentEntry(
        key="moody",
        name="moody",
        module="moody_agent",
        class_name="MoodyAgent",
        finite=True,
        description="has moods",
    )
    registry._ALL_AGENTS = (entry,)
    registry.CONFIGS = Path(os.environ["MOODY_CONFIGS"])
    # a study that is killed at random would otherwise be killed in its trials
    estimate.WORTH_A_TRIAL = float(os.environ.get("WORTH_A_TRIAL", "inf"))
    if os.environ["MOODY_START"] == "anew":
        local.may_fork = lambda: False
    local.COMMAND = (sys.executable, str(HERE / "moody.py"), "worker")


if __name__ == "__main__":
    install()
    if sys.argv[1] == "worker":
        from ottrpo.experiments.worker import main

        main(int(sys.argv[2]))
    else:
        from ottrpo.cli import main

        sys.exit(main(sys.argv[1:]))
