"""One run of a study, alone: ``python one_run.py ASKED FOLDER EVERY``, ASKED in JSON."""

import json
import sys
from pathlib import Path


def main(asked, folder, every):
    from ottrpo.threads import default_to_one_thread

    default_to_one_thread()
    from ottrpo.experiments.run import plan_run
    from ottrpo.experiments.training import begin_or_go_on

    begin_or_go_on([plan_run(**json.loads(asked))], [Path(folder)], int(every))


if __name__ == "__main__":
    main(*sys.argv[1:])
