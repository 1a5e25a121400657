"""One run of a study, alone: ``python one_run.py ASKED FOLDER EVERY``, ASKED in JSON."""

import json
import sys
from pathlib import Path

from ottrpo.threads import default_to_one_thread

default_to_one_thread()

from ottrpo.experiments.run import plan_run  # noqa: E402
from ottrpo.experiments.worker import begin_or_go_on  # noqa: E402

begin_or_go_on(plan_run(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]))
