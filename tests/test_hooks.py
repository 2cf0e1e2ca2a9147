"""The list in hooks.py names everything that is replaced in fairseq, and nothing else."""

import json
import re

from conftest import succeed
from maelm_fairseq.training import hooks

REPLACED = """
import json
import sys
from types import SimpleNamespace

import fairseq_cli.train


def places():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("fairseq")]
    values = [value for module in modules for value in vars(module).values()]
    classes = {value for value in values if isinstance(value, type)}
    return [*modules, *(kind for kind in classes if kind.__module__.startswith("fairseq"))]


def inherited(place, name):
    return isinstance(place, type) and any(name in vars(parent) for parent in place.__mro__[1:])


before = {place: dict(vars(place)) for place in places()}
import maelm_fairseq.plugin  # extends fairseq's command

replaced = set()
for place, old in before.items():
    new = vars(place)
    replaced |= {name for name, value in old.items() if new[name] is not value}
    replaced |= {name for name in new.keys() - old.keys() if inherited(place, name)}
task = SimpleNamespace(train_step=None, valid_step=None, reduce_metrics=None)
original = dict(vars(task))
maelm_fairseq.plugin.hooks.loop.stopping.share_stop_requests(task)
replaced |= {name for name, value in vars(task).items() if original[name] is not value}
print(json.dumps(sorted(replaced)))
"""


def test_the_list_names_all_that_is_replaced():
    replaced = json.loads(succeed("python", "-W", "ignore", "-c", REPLACED).splitlines()[-1])
    headings = re.findall(r"^(`.*) \(.*\)$", hooks.__doc__, re.M)
    named = re.findall(r"`(?:\w+\.)*(\w+)`", " ".join(headings))
    assert sorted({*named}) == replaced
