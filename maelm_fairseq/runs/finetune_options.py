"""The options of the fine-tuning recipes, and the commands of fairseq-train that they lead to."""

import itertools
import os
from functools import partial
from typing import NamedTuple

import torch

from .. import PLUGIN_FOLDER
from ..base.command_line import Parser, number_in_range
from ..base.destinations import check_output_folder
from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..checkpoints.building import find_checkpoint_file, read_checkpoint
from ..checkpoints.compatibility import check_vocabulary
from ..fairseq_api import (
    LR_SCHEDULER_DATACLASS_REGISTRY,
    OPTIMIZER_DATACLASS_REGISTRY,
    FairseqConfig,
    convert_namespace_to_omegaconf,
)
from ..finetuning.encoder_options import OPTIONS_OF_CHECKPOINT
from ..finetuning.hyperparameters import Hyperparameters
from ..training.option_checks import check_run_options
from ..vocabulary import load_dictionary
from .fairseq_args import parse_fairseq_args, refuse_recipe_options, refuse_stray_value
from .pretrain_settings import given_values

BF16 = "--bf16-autocast"
OPTIMIZER = "torch_adamw"
SCHEDULE = "polynomial_decay"
ADAM = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.01}

# Among fairseq's options of datasets, checkpoints and distributed training, users may set these.
USER_MAY_SET = {
    "num_workers",
    "data_buffer_size",
    "batch_size_valid",
    "max_tokens_valid",
    "validate_interval",
    "validate_interval_updates",
    "best_checkpoint_metric",
    "maximize_best_checkpoint_metric",
    "save_interval",
    "save_interval_updates",
    "keep_interval_updates",
    "keep_last_epochs",
    "no_epoch_checkpoints",
}
SET_BY_RECIPE = [
    "task",
    "criterion",
    "arch",
    "data",
    "labelled",
    "seed",
    "update_freq",
    "max_update",
    "max_epoch",
    "tpu",
    "stop_time_hours",
    "log_format",
]


def known_options(config_class, settings):
    """Those of {name: value} that a class of fairseq's configuration has, as options.

    Args:
        config_class: None for a part of fairseq that has no such class, and no settings of ours
        settings: {name: value}
    """
    options = []
    for name, value in settings.items():
        if name in getattr(config_class, "__dataclass_fields__", {}):
            options += [option_name(name), value]
    return options


def options_set_by_recipe():
    """The names of the options of fairseq that users may not set."""
    names = list(SET_BY_RECIPE)
    for section in ["dataset", "checkpoint", "distributed_training"]:
        fields = FairseqConfig.__dataclass_fields__[section].type.__dataclass_fields__
        names += [name for name in fields if name not in USER_MAY_SET]
    return names


def parse_args(task_class, argv, program, description):
    """Parses the options of a recipe.

    Args:
        task_class: `FineTuningTask` of the recipe
        argv: the arguments
        program, description: what the recipe is called, and does
    Returns: namespace; the further options, which are fairseq-train's
    """
    parser = Parser(prog=program, description=description, epilog=epilog(task_class))
    add_options(parser)
    add_settings(parser)
    args, fairseq_args = parser.parse_known_args(argv)
    refuse_stray_value(fairseq_args)
    args.save_dir = os.path.abspath(args.save_dir)
    check_output_folder(args.save_dir, option="--save-dir")
    if args.only_seed and args.only_seed > args.seeds:
        raise UsageError(
            f"--only-seed {args.only_seed} must be from 1 to --seeds, which is {args.seeds}"
        )
    return args, fairseq_args


def add_options(parser):
    add = parser.add_argument
    add(
        "--labelled",
        required=True,
        metavar="DIR",
        help="folder of the labelled files; its name is the task's",
    )
    add("--checkpoint", required=True, metavar="FILE", help="the pretrained model")
    add("--data", required=True, metavar="DIR", help="folder with its vocabulary")
    add("--save-dir", required=True, metavar="DIR", help="folder for all runs")
    add(
        "--seeds",
        type=number_in_range(1),
        default=5,
        metavar="N",
        help="runs whose median is reported (default: 5)",
    )
    add(
        "--search",
        action="store_true",
        help="search the paper's settings first, with a separate seed",
    )
    add(
        "--from-scratch",
        action="store_true",
        help="train the same architecture without the pretrained weights",
    )
    add(
        "--jobs",
        type=number_in_range(1),
        metavar="N",
        help="runs at the same time (default: one on each GPU, or one on the CPU)",
    )
    add(
        "--only-seed",
        type=number_in_range(1),
        metavar="N",
        help="only do this one of the --seeds runs, as in a job array; the command without it "
        "collects the results",
    )


def add_settings(parser):
    defaults = "the defaults are in maelm_fairseq/finetuning/hyperparameters.py and glue.py"
    group = parser.add_argument_group("settings", defaults)
    add = partial(group.add_argument, nargs="+")
    several = "; several with --search"
    add("--batch-size", type=number_in_range(1), metavar="N", help="sequences per update" + several)
    add(
        "--lr",
        type=number_in_range(1e-12, 10, float),
        metavar="LR",
        help="peak learning rate" + several,
    )
    warmup = "share of warm-up updates" + several
    add("--warmup-ratio", type=number_in_range(0, 1, float), metavar="R", help=warmup)
    epochs = "passes over the training data" + several
    add("--epochs", type=number_in_range(1, 10**6), metavar="N", help=epochs)


def epilog(task_class):
    """The end of a recipe's help."""
    text = (
        f"All other options go to fairseq-train, such as {BF16} for bfloat16 on CPU or GPU, in "
        "place of fp16"
    )
    if task_class.recipe_help:
        text += f", and {task_class.recipe_help}"
    return f"{text}. docs/finetuning.md says which files are read."


def hyperparameters_to_try(args, defaults):
    """The settings to run, or to search: list of `Hyperparameters`.

    Of each setting the values given, else with --search those of the search space, else the
    default.

    Args:
        args: of `parse_args`
        defaults: `finetuning.hyperparameters.Defaults`
    Raises:
        UsageError: several values are given without --search
    """
    values = []
    for field in Hyperparameters._fields:
        candidates = getattr(args, field)
        if candidates is None:
            if args.search:
                candidates = getattr(defaults.search_space, field)
            else:
                candidates = [getattr(defaults.hyperparameters, field)]
        elif len(candidates) > 1 and not args.search:
            given = " ".join(map(str, candidates))
            raise UsageError(
                f"{option_name(field)} {given}: give one value, or add --search to try them all"
            )
        values.append(list(dict.fromkeys(candidates)))
    return [Hyperparameters(*combination) for combination in itertools.product(*values)]


class Run(NamedTuple):
    """A run of fairseq-train."""

    hyperparameters: Hyperparameters
    seed: int


class FineTuningCommand:
    """The commands of fairseq-train for the runs of one task from one checkpoint.

    Args:
        task_name: fairseq's name of the task
        task_class: the `FineTuningTask` of that name
        args, fairseq_args: of `parse_args`
    """

    def __init__(self, task_name, task_class, args, fairseq_args):
        self.task_name = task_name
        self.task_class = task_class
        self.args = args
        self.fairseq_args = fairseq_args
        self.labelled_folder = os.path.abspath(args.labelled)
        self.name = os.path.basename(self.labelled_folder)  # of the task, for the user
        self.checkpoint_file = os.path.abspath(find_checkpoint_file(args.checkpoint))
        checkpoint = read_checkpoint(self.checkpoint_file)
        if not args.from_scratch:
            check_vocabulary(checkpoint, load_dictionary(args.data), self.checkpoint_file)
        self.model_options = checkpoint["cfg"]["model"]
        self.defaults = task_class.default_settings(
            self.name,
            self.model_options["encoder_embed_dim"],
            self.model_options["encoder_layers"],
        )

    def argv(self, run, updates, save_dir, validation_splits):
        """The command of a run.

        Args:
            run: `Run`
            updates: how many it makes
            save_dir: its folder
            validation_splits: that it is validated on
        """
        options = self.recipe_options(run, updates, save_dir, validation_splits)
        return ["fairseq-train", "--user-dir", PLUGIN_FOLDER, *options, *self.fairseq_args]

    def recipe_options(self, run, updates, save_dir, validation_splits):
        """The options that the recipe sets; arguments as for `argv`."""
        batch_size, lr, warmup_ratio, _ = run.hyperparameters
        options = [
            *[os.path.abspath(self.args.data), "--labelled", self.labelled_folder],
            *["--task", self.task_name, "--criterion", self.task_name, "--arch", "mae_lm"],
            *self.start_options(),
            *["--save-dir", save_dir, "--valid-subset", ",".join(validation_splits)],
            "--ignore-unused-valid-subsets",  # those of the text in --data
            *["--dropout", 0.1, "--attention-dropout", 0.1, "--pooler-dropout", 0.1],
            *["--batch-size", batch_size, "--required-batch-size-multiple", 1],
            *["--seed", run.seed],
            *["--lr", lr, "--max-update", updates],
            *self.optimizer_options(),
            *self.schedule_options(round(updates * warmup_ratio), updates),
            *["--no-epoch-checkpoints", "--save-interval-updates", 5000],
            *["--keep-interval-updates", 1],
            *["--num-workers", 0, "--distributed-world-size", 1],
            *["--log-format", "json", "--log-interval", 50],
            *self.device_options(),
        ]
        return list(map(str, options))

    def start_options(self):
        """Options: the pretrained checkpoint, or the sizes of its encoder."""
        if not self.args.from_scratch:
            return ["--finetune-from-model", self.checkpoint_file]
        switches = ["share_decoder_layers", "relative_position_local_init"]
        options = [option_name(name) for name in switches if self.model_options.get(name)]
        for name in OPTIONS_OF_CHECKPOINT:
            if name not in switches:
                options += [option_name(name), self.model_options[name]]
        return options

    def optimizer_options(self):
        """Options: the optimizer, or that which the user gives, and those settings that it has."""
        settings = {**ADAM, **self.layer_decay_settings()}
        optimizer = given_values(self.fairseq_args, "optimizer").get("optimizer", OPTIMIZER)
        known = known_options(OPTIMIZER_DATACLASS_REGISTRY.get(optimizer), settings)
        return ["--optimizer", optimizer, *known]

    def schedule_options(self, warmup, updates):
        """Options: the schedule, or the one that the user gives, and those settings that it has."""
        settings = {"warmup_updates": warmup, "total_num_update": updates}
        schedule = given_values(self.fairseq_args, "lr_scheduler").get("lr_scheduler", SCHEDULE)
        known = known_options(LR_SCHEDULER_DATACLASS_REGISTRY.get(schedule), settings)
        return ["--lr-scheduler", schedule, *known]

    def layer_decay_settings(self):
        """Lower rates for the lower layers, {name: value}, if that is a default.

        From scratch there are none, as these layers have nothing to keep.
        """
        if self.defaults.layer_decay is None or self.args.from_scratch:
            return {}
        return {"lr_layer_decay": self.defaults.layer_decay}

    def device_options(self):
        """Options: fp16 on a GPU, unless another precision is asked for."""
        if not torch.cuda.is_available():
            return ["--cpu"]
        if {BF16, "--cpu"} & {*self.fairseq_args}:
            return []
        return ["--fp16", "--fp16-no-flatten-grads"]

    def configuration(self, hyperparameters):
        """fairseq's configuration of a run, before its folder and its updates are known.

        Raises UsageError: a further option changes what the recipe itself sets, or no run can have
        it
        """
        run = Run(hyperparameters, seed=1)
        options = self.recipe_options(run, 1, self.args.save_dir, ["valid"])
        recipe = parse_fairseq_args(options)
        whole = parse_fairseq_args([*options, *self.fairseq_args])
        refuse_recipe_options(options_set_by_recipe(), recipe, whole, self.fairseq_args)
        cfg = convert_namespace_to_omegaconf(whole)
        check_run_options(cfg)
        return cfg
