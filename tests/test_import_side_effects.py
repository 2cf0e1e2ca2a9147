"""Importing a module of this project changes nothing in the importing program."""

import json
from pathlib import Path

from conftest import ROOT, succeed

# Imports modules one after the other; prints [[module, what it changed, before, after]]. What torch
# and the libraries that fairseq imports change is not our fault, so they are imported first; what
# fairseq changes when the plugin imports it is.
IMPORT_ALL = """
import hashlib, importlib, json, locale, logging, os, random, signal, sys, threading, warnings
sys.path[:0] = json.loads(sys.argv[2])
import numpy, torch, torch._dynamo
libraries = ["sklearn.metrics", "matplotlib.pyplot", "torch.utils.tensorboard"]
for library in [*libraries, "hydra", "sacrebleu", "tqdm"]:
    try:
        importlib.import_module(library)
    except ImportError:
        pass
logging.getLogger("mine").setLevel(logging.ERROR)

def state():
    root, mine = logging.getLogger(), logging.getLogger("mine")
    signals = signal.valid_signals()
    of_numpy = list(numpy.random.get_state()[1])
    numbers = repr([torch.get_rng_state().tolist(), of_numpy, random.getstate()])
    dtype = repr(torch.get_default_dtype())
    return {
        "hooks": [repr(sys.excepthook), repr(threading.excepthook), repr(warnings.showwarning)],
        "signal handlers": {int(number): repr(signal.getsignal(number)) for number in signals},
        "loggers": [root.level, repr(root.handlers), mine.level, mine.disabled],
        "logging": logging.root.manager.disable,
        "warnings.filters": [repr(entry) for entry in warnings.filters],
        "sys.path": list(sys.path),
        "streams": [repr(sys.stdin), repr(sys.stdout), repr(sys.stderr)],
        "environment": sorted(os.environ.items()),
        "settings": [os.getcwd(), sys.argv, sys.getrecursionlimit()],
        "locale": locale.setlocale(locale.LC_ALL),
        "torch's safe globals": sorted(map(repr, torch.serialization.get_safe_globals())),
        "torch's modes": [dtype, torch.get_num_threads(), torch.is_grad_enabled()],
        "random numbers": hashlib.sha256(numbers.encode()).hexdigest(),
    }

changes = []
for name in json.loads(sys.argv[1]):
    before = state()
    importlib.import_module(name)
    after = state()
    for key, value in before.items():
        if after[key] != value:
            changes.append([name, key, value, after[key]])
print(json.dumps(changes))
"""


def test_the_package_and_the_programs():
    package = []
    for path in sorted((ROOT / "maelm_fairseq").rglob("*.py")):
        # The one needs transformers, the others are programs.
        if path.stem not in ["modeling_mae_lm", "__main__"]:
            parts = path.relative_to(ROOT).with_suffix("").parts
            package.append(".".join(parts).replace(".__init__", ""))
    assert "maelm_fairseq" in package
    assert "maelm_fairseq.finetuning.prediction" in package
    names = ["recipes", "recipes/demo", "experiments", "data-prep", "benchmarks"]
    folders = [str(ROOT / name) for name in names]
    programs = []
    for folder in folders:
        in_folder = [path.stem for path in sorted(Path(folder).glob("*.py"))]
        assert in_folder
        programs += in_folder
    arguments = [json.dumps([*package, *programs]), json.dumps(folders)]
    printed = succeed("python", "-c", IMPORT_ALL, *arguments, cwd=ROOT, real=True)
    for module, changed, before, after in json.loads(printed.splitlines()[-1]):
        # Programs find the packages of this repository by adding its folders.
        assert (changed, module in package) == ("sys.path", False), module
        assert {*before} <= {*after}, module
        for folder in {*after} - {*before}:
            assert folder.startswith(str(ROOT)), module
