"""Claims that end, hang or kill their process, for the tests of interruption."""

import os
import time
from pathlib import Path

from theory_checks import Claim, Invariant, Sweep


def make(name, measure):
    return Claim(
        name=name,
        theorem="A toy statement.",
        reference="Nobody, nowhere.",
        quantity="truth",
        law=Invariant(),
        measure=measure,
        sweep=Sweep.once(),
        control=lambda point, seed: False,
        control_text="says no",
    )


def hang(point, seed):
    Path(os.environ["OPTIKIT_TEST_STARTED"]).write_text(str(os.getpid()))
    time.sleep(300)
    return True


def die(point, seed):
    os._exit(3)


def interrupt(point, seed):
    raise KeyboardInterrupt


CLAIMS = [
    make("stops.first", lambda point, seed: True),
    make("stops.hangs", hang),
    make("stops.dies", die),
    make("stops.interrupts", interrupt),
]
