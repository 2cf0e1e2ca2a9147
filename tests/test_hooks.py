"""The table in hooks.py names all that is replaced in fairseq, and nothing else."""

import json
import re

from conftest import succeed
from maelm_fairseq.training import hooks

REPLACED = """
import inspect
import json
import sys
from types import SimpleNamespace

import fairseq_cli.train


def attributes():
    # {(module or class, name): value} of all in fairseq, inherited methods of its classes included
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("fairseq")]
    values = [value for module in modules for value in vars(module).values()]
    classes = {value for value in values if isinstance(value, type) and value.__module__.startswith("fairseq")}
    places = [*modules, *classes]
    return {(place, name): inspect.getattr_static(place, name) for place in places for name in dir(place)}


before = attributes()
import maelm_fairseq.plugin  # extends fairseq's command

after = attributes()
replaced = {name for (place, name), value in before.items() if after[place, name] is not value}
task = SimpleNamespace(train_step=None, valid_step=None, reduce_metrics=None)
original = dict(vars(task))
maelm_fairseq.plugin.hooks.loop.stopping.listen(task)
replaced |= {name for name, value in vars(task).items() if original[name] is not value}
print(json.dumps(sorted(replaced)))
"""


def test_the_table_names_all_that_is_replaced():
    replaced = json.loads(succeed("python", "-W", "ignore", "-c", REPLACED).splitlines()[-1])
    rows = re.findall(r"^\| (`.*?) \|", hooks.__doc__, re.M)
    named = re.findall(r"`(?:\w+\.)*(\w+)`", " ".join(rows))
    assert sorted({*named}) == replaced
