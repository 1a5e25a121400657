"""The pendulums of these tests by name, ``toy:Pendulum``, and the command line that knows them.

python -m tests.device.toy COUNT train toy:Pendulum ...   killed by itself at its COUNTth checkpoint
"""

import os
import signal
import sys

from ottrpo.envs import functional
from ottrpo.envs.functional import adapters
from tests.device import pendulum


def install(patch=setattr):
    families = functional.FAMILIES | {"toy": (pendulum.__name__, "Toy")}
    patch(functional, "FAMILIES", families)
    patch(adapters, "Toy", lambda library, name: vars(library)[name]())


if __name__ == "__main__":
    from ottrpo.cli import main
    from ottrpo.experiments.together import Together

    adapters.Toy = None
    install()
    write, left = Together._checkpoint, int(sys.argv[1])

    def checkpoint(self, done):
        global left
        write(self, done)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Together._checkpoint = checkpoint
    sys.exit(main(sys.argv[2:]))
