"""Registers models, tasks, criterions and the optimizer with fairseq, and extends its commands.

Everything that registers itself is imported here by name: fairseq itself would import only files in
`tasks/` and `models/`, never criterions. A program that uses fairseq's registries imports this
module, after fairseq or before it.
"""

from . import criterion, model, optimizer, task
from .finetuning import sentences, squad, tagging
from .training import hooks

if hooks.is_fairseq_command():
    hooks.install_hooks()
