"""Importing a module of this project changes nothing in the importing program."""

import json
import os
import subprocess
import sys

import pytest

from conftest import PYTHON, ROOT

# Imports modules one after the other; prints [[module, what it changed, before, after]]. What torch and the libraries
# that fairseq imports change is not ours, but what fairseq changes when the plugin imports it is.
IMPORT_ALL = """
import hashlib, importlib, json, locale, logging, os, random, signal, sys, threading, warnings
sys.path[:0] = json.loads(sys.argv[2])
import numpy, torch, torch._dynamo
for library in ["sklearn.metrics", "matplotlib.pyplot", "torch.utils.tensorboard", "hydra", "sacrebleu", "tqdm"]:
    try:
        importlib.import_module(library)
    except ImportError:
        pass
logging.getLogger("mine").setLevel(logging.ERROR)

def digest(state):
    return hashlib.sha256(repr(state).encode()).hexdigest()

def state():
    root = logging.getLogger()
    numpy_state = numpy.random.get_state()
    return {
        "sys.excepthook": repr(sys.excepthook),
        "threading.excepthook": repr(threading.excepthook),
        "signal handlers": {int(number): repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "logging": [root.level, repr(root.handlers), logging.root.manager.disable, repr(logging.getLoggerClass())],
        "levels of loggers": {
            name: [logger.level, logger.disabled, logger.propagate, repr(logger.handlers)]
            for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
        },
        "warnings.filters": [repr(entry) for entry in warnings.filters],
        "warnings.showwarning": repr(warnings.showwarning),
        "sys.path": list(sys.path),
        "sys.argv": list(sys.argv),
        "streams": [repr(sys.stdin), repr(sys.stdout), repr(sys.stderr)],
        "environment": digest(sorted(os.environ.items())),
        "working directory": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "torch's safe globals": sorted(map(repr, getattr(torch.serialization, "get_safe_globals", list)())),
        "torch's default dtype": repr(torch.get_default_dtype()),
        "torch's threads": torch.get_num_threads(),
        "torch's gradients and modes": [torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()],
        "torch's random numbers": digest(torch.get_rng_state().tolist()),
        "numpy's random numbers": digest([numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]]),
        "numpy's errors": numpy.geterr(),
        "Python's random numbers": digest(random.getstate()),
        "recursion limit": sys.getrecursionlimit(),
    }

changes = []
for name in json.loads(sys.argv[1]):
    before = state()
    importlib.import_module(name)
    after = state()
    for key, was in before.items():
        now = after[key]
        if key == "levels of loggers":  # new loggers may be created
            now = {logger: now.get(logger) for logger in was}
        if now != was:
            changes.append([name, key, was, now])
print(json.dumps(changes))
"""


def changes(python, modules, *folders):
    """What importing modules changes in a new process: [[module, what, before, after]]."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", IMPORT_ALL, json.dumps(modules), json.dumps(list(map(str, folders)))],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_package():
    files = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "maelm_fairseq").rglob("*.py"))]
    files = [file for file in files if file.name != "modeling_mae_lm"]  # imports transformers, which nothing here needs
    modules = [".".join(file.parts) for file in files if file.name != "__main__"]  # a program
    modules = [name[: -len(".__init__")] if name.endswith(".__init__") else name for name in modules]
    assert "maelm_fairseq" in modules and "maelm_fairseq.squad.task" in modules
    assert changes(sys.executable, modules) == []


def is_the_repository(change):
    """Whether a change adds folders of this repository to `sys.path`: programs find its packages in that way."""
    _, what, before, after = change
    added = [folder for folder in after if folder not in before]
    return what == "sys.path" and all(folder.startswith(str(ROOT)) for folder in added) and {*before} <= {*after}


@pytest.mark.parametrize(
    "folders", [["recipes", "recipes/demo", "recipes/miniature", "recipes/scores", "data-prep"], ["benchmarks"]]
)
def test_programs(folders):
    folders = [ROOT / folder for folder in folders]
    modules = [path.stem for folder in folders for path in sorted(folder.glob("*.py"))]
    assert len(modules) == len(set(modules)) > 5
    found = changes(sys.executable, modules, *folders)
    assert [change for change in found if not is_the_repository(change)] == []


def test_a_change_is_noticed(tmp_path):
    (tmp_path / "rude.py").write_text(
        "import logging, os, signal, sys, warnings\n"
        "sys.excepthook = print\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "logging.getLogger('mine').setLevel(5)\n"
        "warnings.simplefilter('ignore')\n"
        "os.environ['RUDE'] = '1'\n"
    )
    assert {change[1] for change in changes(PYTHON, ["json", "rude"], tmp_path)} >= {
        "sys.excepthook", "signal handlers", "levels of loggers", "warnings.filters", "environment",
    }  # fmt: skip
