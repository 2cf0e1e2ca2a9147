"""Importing a module of this project changes nothing in the importing program."""

import json
import subprocess
import sys

from conftest import ROOT, succeed

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

def state():
    root, mine = logging.getLogger(), logging.getLogger("mine")
    numbers = repr([torch.get_rng_state().tolist(), list(numpy.random.get_state()[1]), random.getstate()])
    return {
        "hooks": [repr(sys.excepthook), repr(threading.excepthook), repr(warnings.showwarning)],
        "signal handlers": {int(number): repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "logging": [root.level, repr(root.handlers), logging.root.manager.disable, mine.level, mine.disabled],
        "warnings.filters": [repr(entry) for entry in warnings.filters],
        "sys.path": list(sys.path),
        "streams": [repr(sys.stdin), repr(sys.stdout), repr(sys.stderr)],
        "environment": sorted(os.environ.items()),
        "settings": [os.getcwd(), sys.argv, locale.setlocale(locale.LC_ALL), sys.getrecursionlimit()],
        "torch's safe globals": sorted(map(repr, torch.serialization.get_safe_globals())),
        "torch's modes": [repr(torch.get_default_dtype()), torch.get_num_threads(), torch.is_grad_enabled()],
        "random numbers": hashlib.sha256(numbers.encode()).hexdigest(),
    }

changes = []
for name in json.loads(sys.argv[1]):
    before = state()
    importlib.import_module(name)
    after = state()
    changes += [[name, key, was, after[key]] for key, was in before.items() if after[key] != was]
print(json.dumps(changes))
"""


def test_the_package_and_the_programs():
    files = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "maelm_fairseq").rglob("*.py"))]
    files = [file for file in files if file.name not in ["modeling_mae_lm", "__main__"]]  # transformers; programs
    package = [".".join(file.parts).replace(".__init__", "") for file in files]
    assert "maelm_fairseq" in package and "maelm_fairseq.finetuning.prediction" in package
    folders = [ROOT / name for name in ["recipes", "recipes/demo", "experiments", "data-prep", "benchmarks"]]
    programs = [[path.stem for path in sorted(folder.glob("*.py"))] for folder in folders]
    assert all(programs)
    arguments = json.dumps([*package, *sum(programs, [])]), json.dumps(list(map(str, folders)))
    printed = succeed("python", "-c", IMPORT_ALL, *arguments, cwd=ROOT, real=True)
    for module, what, before, after in json.loads(printed.splitlines()[-1]):
        # Programs find the packages of this repository by adding its folders.
        added = [folder for folder in after if folder not in before]
        assert module not in package and what == "sys.path", (module, what)
        assert all(folder.startswith(str(ROOT)) for folder in added) and {*before} <= {*after}, module


def test_programs_of_the_package_say_at_once_that_they_load():
    for program, printed in [
        (["-m", "maelm_fairseq.base.signals"], "loading ...\n"),
        (["-c", "import maelm_fairseq"], ""),
    ]:
        done = subprocess.run([sys.executable, *program], cwd=ROOT, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", printed)
