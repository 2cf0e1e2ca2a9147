"""Recipes have the settings of docs/pretraining.md, as fairseq's own parsers read them.

Their scripts train, resume and stop.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq import options, utils
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import maelm_fairseq.plugin  # noqa: F401
import pretrain
from conftest import PLUGIN, ROOT, SCRIPTS_ENVIRONMENT, error_of, error_of_script, run_main, script
from maelm_fairseq.runs.log_report import LogReport
from maelm_fairseq.training import first_updates
from training import checkpoint, train, updates

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # the hydra of fairseq 0.12.2
    from hydra.experimental import compose, initialize_config_dir

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

RECIPES = ROOT / "recipes"
DATA = ["--data", "/data", "--save-dir", "/save"]

# docs/pretraining.md says where each setting comes from. Those of base++ are the ones that the
# authors released.
BASE = {
    "encoder_layers": 12,
    "encoder_embed_dim": 768,
    "encoder_ffn_embed_dim": 3072,
    "encoder_attention_heads": 12,
}
LARGE = {
    "encoder_layers": 24,
    "encoder_embed_dim": 1024,
    "encoder_ffn_embed_dim": 4096,
    "encoder_attention_heads": 16,
}
TABLE = {
    "pretrain_base": dict(
        steps=125_000, lr=5e-4, num_buckets=32, max_distance=128, model=BASE,
    ),
    "pretrain_base_plus_plus": dict(
        steps=2_000_000, lr=2e-4, num_buckets=64, max_distance=128, model=BASE,
    ),
    "pretrain_large_plus_plus": dict(
        steps=2_000_000, lr=1e-4, num_buckets=128, max_distance=256, model=LARGE,
    ),
}  # fmt: skip
WARM_UP = 10_000
DECODER_LAYERS = 4
TOKENS = 512
EFFECTIVE_BATCH = 2048
CLIP = 2.0
ADAM_BETAS = [0.9, 0.98]
ADAM_EPS = 1e-6
WEIGHT_DECAY = 0.01

ODD = "-odd \"na'me $HOME *"  # name of a folder

# Sizes of a model that can be trained here; all other settings are the recipe's.
SMALL = [
    "--encoder-layers",
    1,
    "--decoder-layers",
    1,
    "--encoder-attention-heads",
    2,
    "--encoder-embed-dim",
    32,
    "--encoder-ffn-embed-dim",
    64,
]


def dry_run(name, *arguments, **environment):
    """The arguments of the fairseq-train command that a recipe would become."""
    words = [RECIPES / name, *DATA, "--dry-run", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run_main(pretrain.main, *words, **environment)
    return shlex.split(printed.getvalue())[1:]


def parse_command(arguments):
    """fairseq-train's configuration for its arguments."""
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=arguments))


def parse_yaml(name, *overrides):
    """fairseq-hydra-train's configuration for a recipe."""
    words = [f"common.user_dir={PLUGIN}", "task.data=/data", "checkpoint.save_dir=/save"]
    if name != "pretrain_base":
        variant = RECIPES / "hydra" / (name.removeprefix("pretrain_") + ".txt")
        words += variant.read_text().split()
    words += overrides
    GlobalHydra.instance().clear()
    hydra_init("pretrain_base")
    with initialize_config_dir(config_dir=str(RECIPES / "hydra")):
        config = compose("pretrain_base", overrides=words)
    utils.import_user_module(config.common)
    add_defaults(config)
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))


@pytest.mark.parametrize("name", TABLE)
def test_recipe_has_the_settings_of_the_method(name):
    config = parse_command(dry_run(name + ".sh", "--gpus", 64))
    setting = TABLE[name]

    assert config.task._name == "mae_lm"
    assert config.task.tokens_per_sample == TOKENS
    assert config.task.sample_break_mode == "complete_doc"
    assert config.task.mask_prob == 0.15
    assert config.task.encoder_mask_fraction == 0
    assert config.task.leave_unmasked_prob == 0
    assert config.task.random_token_prob == 0
    assert config.criterion._name == "mae_lm"

    assert {key: config.model[key] for key in setting["model"]} == setting["model"]
    assert config.model.max_positions == TOKENS
    assert config.model.relative_position_num_buckets == setting["num_buckets"]
    assert config.model.relative_position_max_distance == setting["max_distance"]
    assert config.model.decoder_layers == DECODER_LAYERS
    assert config.model.dropout == 0.1
    assert config.model.attention_dropout == 0.1
    assert config.model.decoder_dropout == 0

    assert config.optimization.max_update == setting["steps"]
    assert list(config.optimization.lr) == [setting["lr"]]
    assert config.optimization.clip_norm == CLIP
    assert effective_batch(config) == EFFECTIVE_BATCH

    assert_optimizer_of_the_method(config, setting)


def assert_optimizer_of_the_method(config, setting):
    assert config.lr_scheduler._name == "polynomial_decay"
    assert config.lr_scheduler.warmup_updates == WARM_UP
    assert config.lr_scheduler.total_num_update == setting["steps"]
    assert list(config.lr_scheduler.lr) == [setting["lr"]]
    assert config.lr_scheduler.power == 1
    assert config.lr_scheduler.end_learning_rate == 0

    assert config.optimizer._name == "torch_adamw"
    assert utils.eval_str_list(str(config.optimizer.adam_betas)) == ADAM_BETAS
    assert config.optimizer.adam_eps == ADAM_EPS
    assert config.optimizer.weight_decay == WEIGHT_DECAY


def effective_batch(config):
    processes = config.distributed_training.distributed_world_size
    (update_freq,) = config.optimization.update_freq
    return processes * config.dataset.batch_size * update_freq


@pytest.mark.parametrize("name", [*TABLE, "pretrain_small"])
def test_both_command_lines_have_one_configuration(name):
    command = parse_command(dry_run(name + ".sh", "--gpus", 1))
    yaml = parse_yaml(name)
    groups = ["common", "checkpoint", "dataset", "optimization", "distributed_training"]
    groups += ["task", "model", "criterion", "optimizer", "lr_scheduler"]
    for group in groups:
        assert settings(command[group]) == settings(yaml[group]), group


def settings(group):
    """The settings of a group that are not None, as texts."""
    # fairseq-train fills these in from others, fairseq-hydra-train does when it starts.
    filled_in = ("batch_size_valid", "no_seed_provided", "distributed_num_procs")
    return {
        name: str(value)
        for name, value in group.items()
        if value is not None and not name.startswith("_") and name not in filled_in
    }


@pytest.mark.parametrize("gpus", [0, 4])
@pytest.mark.parametrize("by", ["slurm", "address"])
def test_several_machines(tmp_path, by, gpus):
    if by == "slurm":
        arguments = second_of_two_by_slurm(tmp_path, gpus)
        machine = 1
        port = 20007
    else:
        variables = {"MASTER_ADDR": "node1", "MASTER_PORT": "20007"}
        arguments = dry_run("pretrain_base.sh", f"--gpus={gpus}", "--nodes=2", **variables)
        machine = 0  # a dry run shows the command of the first
        port = 20008
    config = parse_command(arguments)
    distributed = config.distributed_training
    assert distributed.distributed_init_method == f"tcp://node1:{port}"
    assert distributed.distributed_rank == machine * max(gpus, 1)
    assert distributed.distributed_world_size == 2 * max(gpus, 1)
    assert distributed.distributed_no_spawn == (gpus == 0)
    assert distributed.distributed_backend == ("nccl" if gpus else "gloo")
    assert config.common.cpu == (gpus == 0)
    assert config.common.fp16 == (gpus > 0)
    assert effective_batch(config) == EFFECTIVE_BATCH


def second_of_two_by_slurm(folder, gpus):
    """The arguments of fairseq-train on the second of two machines of a job, by a dry run."""
    scripts = {
        "srun": 'SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NODELIST="node[1-2]" exec "$@"',
        "scontrol": "echo node1; echo node2",
    }
    for name, text in scripts.items():
        (folder / name).write_text("#!/bin/bash\n" + text + "\n")
        (folder / name).chmod(0o755)
    recipe = [RECIPES / "pretrain_base.sh", *DATA, "--dry-run"]
    variables = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}
    if gpus:
        variables["SLURM_GPUS_PER_NODE"] = "a100:4"
    else:
        recipe += ["--gpus", 0]
    variables["PATH"] = str(folder) + os.pathsep + SCRIPTS_ENVIRONMENT["PATH"]
    printed = script("recipes/slurm/pretrain.sbatch", *recipe, **variables).stdout
    return shlex.split(printed)[1:]


def test_further_options_override_the_recipe():
    extra = ["--lr", "3e-4", "--mask-whole-words", "--arch", "mae_lm_large", "--bf16-autocast"]
    extra += ["--lr-scheduler=tri_stage", "--warmup-steps", 10, "--optimizer", "sgd"]
    config = parse_command(dry_run("pretrain_base.sh", "--gpus", 1, "--", *extra))
    assert (config.lr_scheduler._name, config.lr_scheduler.warmup_steps) == ("tri_stage", 10)
    assert config.optimizer._name == "sgd"
    assert config.criterion._name == "mae_lm"
    assert list(config.optimization.lr) == [3e-4]
    assert config.task.mask_whole_words
    assert config.model.encoder_layers == 24
    assert config.model.relative_position_num_buckets == 128  # not base's
    assert config.task.bf16_autocast
    assert not config.common.fp16


@pytest.mark.parametrize(
    "name, warmup, fade", [("pretrain_small", 33, 83), ("pretrain_base", 240, 0)]
)
def test_updates_scale_what_belongs_to_them(name, warmup, fade):
    """Options that are given on the command line win."""
    config = parse_command(dry_run(name + ".sh", "--gpus", 1, "--updates", 3000))
    assert config.optimization.max_update == 3000
    assert config.lr_scheduler.total_num_update == 3000
    assert config.lr_scheduler.warmup_updates == warmup
    assert config.task.encoder_mask_fade_updates == fade
    assert 0 < config.checkpoint.save_interval_updates <= 750
    options = ["--gpus", 1, "--updates", 10, "--warmup-updates", 7]
    config = parse_command(dry_run(name + ".sh", *options))
    assert config.lr_scheduler.warmup_updates == 7
    assert config.checkpoint.save_interval_updates == 3
    options = ["--gpus", 1, "--updates", 10, "--lr-scheduler", "fixed"]
    config = parse_command(dry_run(name + ".sh", *options))
    assert config.optimization.max_update == 10
    assert config.lr_scheduler._name == "fixed"
    options = ["--gpus", 1, "--updates", 10, "--task", "mae_lm_sentences", "--labelled", "files"]
    assert parse_command(dry_run(name + ".sh", *options)).task._name == "mae_lm_sentences"


def test_first_updates_say_how_long_the_others_take(monkeypatch, caplog):
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(first_updates.time, "monotonic", lambda: next(clock))
    caplog.set_level("INFO", logger=first_updates.__name__)
    run = first_updates.FirstUpdates()
    for update in range(101, 201):
        run.report(update, 1101)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "update 101 of 1,101 done"
    assert lines[1] == "update 110 of 1,101: 2 seconds per update, 0:33:02 left"
    assert lines[2] == "update 125 of 1,101: 2 seconds per update, 0:32:32 left"
    assert len(lines) == 3


def test_the_small_recipe_and_the_demo():
    def parsed(*options):
        return parse_command(dry_run("pretrain_small.sh", "--gpus", 0, *options))

    config = parsed()
    assert config.common.cpu
    assert not config.common.fp16
    assert config.task.bf16_autocast
    assert config.model.share_decoder_layers
    assert effective_batch(config) == 64

    script_of_demo = (RECIPES / "demo" / "demo.sh").read_text()
    (demo_options,) = re.findall(r"^options=\(([^)]*)\)", script_of_demo, re.M)
    demo = parsed(*demo_options.split())
    assert effective_batch(demo) == 32
    assert demo.model.max_positions == 64

    own_decoder = parsed("--no-share-decoder-layers", "--decoder-relative-bias")
    assert not own_decoder.model.share_decoder_layers
    assert own_decoder.model.decoder_relative_bias
    own_architecture = parsed("--arch", "mae_lm_base", "--no-share-decoder-layers")
    assert own_architecture.model.encoder_embed_dim == 768
    assert own_architecture.model.relative_position_num_buckets == 32

    assert "--fp16" in dry_run("pretrain_base.sh", "--gpus", 1)
    assert "--fp16" not in dry_run("pretrain_base.sh", "--gpus", 1, "--no-fp16")


def test_a_recipe_on_one_machine_is_alone_whatever_has_started_it(data, tmp_path, monkeypatch):
    """Variables of containers and SLURM would tell fairseq that it is one of several processes."""
    environments = []
    program = SimpleNamespace(cli_main=lambda: environments.append(dict(os.environ)))
    monkeypatch.setattr(pretrain, "load_fairseq_train", lambda: program)
    variables = {
        "WORLD_SIZE": "8",
        "RANK": "0",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_STEP_NODELIST": "node[1-2]",
    }
    options = ["--data", data, "--save-dir", tmp_path, "--gpus", 0]
    run_main(pretrain.main, RECIPES / "pretrain_small.sh", *options, **variables)
    assert variables.keys() & environments[0].keys() == {"RANK"}


def test_help_has_the_plugins_options(tmp_path):
    """Also where a recipe is called through a link, by users whose `cd` prints a folder."""
    (tmp_path / "link").symlink_to(ROOT / "recipes/pretrain_small.sh")
    printed = script(str(tmp_path / "link"), "--help", CDPATH=str(ROOT)).stdout
    assert "\n  --share-decoder-layers  " in printed
    assert "\n  --encoder-mask-fade-updates  " in printed


@pytest.mark.parametrize("arguments, words", [
    (["--gpus", 8, "--batch-size", 24],
     ["8 process(es)", "--batch-size 24", "divide the effective batch of 2048"]),
    (["--updates", 5, "--max-update", 6, "--dry-run"],
     ["--updates 5 and --max-update 6: found both, expected one"]),
    (["--gpus", "many"], ["--gpus: expected an integer from 0 to 2147483647, found 'many'"]),
    (["--gpus", 2048, "--batch-size", 1], ["--gpus 2048: PyTorch sees"]),
    (["--gpus", 1, "--nodes", 2, "--dry-run"], ["MASTER_ADDR"]),
    (["--data", "/nowhere:"], ["--data /nowhere: found no dict.txt in it", "prepare.sh"]),
    (["--save-dir", ""], ["found an empty value; give one, or leave it out"]),
])  # fmt: skip
def test_wrong_options_are_refused(arguments, words):
    recipe = [RECIPES / "pretrain_base.sh", *DATA]
    error = error_of(pretrain.main, *recipe, *arguments, MASTER_ADDR="", CUDA_VISIBLE_DEVICES="")
    assert all(word in error for word in words), error


def test_an_unknown_machine_is_refused(data, tmp_path):
    options = ["--gpus", 0, "--nodes", 2, "--data", data, "--save-dir", tmp_path]
    error = error_of_script("recipes/pretrain_base.sh", *options, MASTER_ADDR="no.such.invalid")
    assert "MASTER_ADDR=no.such.invalid: " in error


def test_script_trains_resumes_and_stops(data, tmp_path):
    save = tmp_path / ODD
    text = tmp_path / (ODD + "data")
    text.symlink_to(data)
    start = ["recipes/pretrain_base.sh", "--gpus", 0, "--batch-size", 4, *SMALL]
    start += ["--data", text, "--save-dir", save]
    start += ["--update-freq", 1, "--log-interval", 1, "--max-update"]
    printed = script(*start, 2).stdout
    assert updates(save) == 2
    assert "validation after 2 updates" in printed
    assert "{" not in printed
    assert list((save / "tensorboard").glob("*"))
    assert "valid_loss" in (save / "train.log").read_text()
    # The same command again finds nothing to do, and resumes when more updates are asked for.
    assert "\nupdate " not in script(*start, 2).stdout
    assert updates(save) == 2
    assert "Loaded checkpoint" in script(*start, 3).stdout
    assert updates(save) == 3
    # Standard error may be closed.
    closed = ["bash", "-c", '"$@" 2>&-', "-", ROOT / start[0], *start[1:], 3, "--dry-run"]
    done = subprocess.run(list(map(str, closed)), capture_output=True, env=SCRIPTS_ENVIRONMENT)
    assert done.stdout
    # fairseq would take a folder with a colon in its name for two folders.
    (tmp_path / "c:d").symlink_to(data)
    assert "separates folders by colons" in error_of_script(*start, 4, "--data", tmp_path / "c:d")
    # fairseq's own errors are one line, too; the log has their stack trace.
    assert "unrecognized arguments: --max-updates 5" in error_of_script(
        *start, 4, "--max-updates", 5
    )
    assert "--encoder-attention-heads" in error_of_script(*start, 4, "--encoder-attention-heads", 5)
    assert "Traceback" in (save / "train.log").read_text()


def test_token_frequencies_are_the_baseline(data, tmp_path):
    dictionary = Dictionary.load(str(data / "dict.txt"))
    tokens = {}
    for split in ("train", "valid"):
        lines = data_utils.load_indexed_dataset(str(data / split), dictionary, "mmap")
        # A blank line separates documents and is never predicted.
        tokens[split] = [token for line in lines if len(line) > 1 for token in line.tolist()]
    size = len(tokens["train"]) + len(dictionary) + 1  # with <mask>, which never occurs
    counts = [tokens["train"].count(token) for token in tokens["valid"]]
    entropy = np.mean([-np.log2((count + 1) / size) for count in counts])
    log = train(data, tmp_path, "--num-workers", 1, "--max-update", 1)
    assert f"unigram_bits {entropy:.3f}: " in log
    assert checkpoint(tmp_path)["task_state"]["unigram_bits"] == pytest.approx(entropy)
    progress = LogReport()
    shown = "\n".join(filter(None, map(progress.format_line, log.splitlines())))
    assert f"% (no better than token frequencies, {entropy:.3f})" in shown


def test_progress_shows_the_remaining_time_after_an_epoch_too():
    log = "2026-01-01 00:00:00 | INFO | {} | {}".format
    stats = {
        "num_updates": "5",
        "ups": "0.5",
        "loss": "9.1",
        "accuracy": "4.2",
        "wps": "1000",
        "lr": "5e-4",
    }
    update = log("train_inner", json.dumps(stats))
    limit = (
        "Stopping training due to cumulative_training_time: 0.0751 > stop_time_hours: 0.075 hour(s)"
    )
    lines = [
        log("fairseq_cli.train", "{'_name': None, 'optimization': {'max_update': 20}}"),
        update,
        log("train", '{"epoch": 1, "train_loss": "9.0"}'),
        update,
        log("fairseq_cli.train", limit),
    ]
    shown = (
        "update 5 of 20: loss 9.1 bits, accuracy 4.2%, learning rate 5e-4, "
        "1,000 tokens/s, 0:00:30 left"
    )
    stops = (
        "stopping before the last update: "
        "the training has taken the 0.075 hours of --stop-time-hours"
    )
    assert list(map(LogReport().format_line, lines)) == [None, shown, None, shown, stops]


def test_the_report_ends_with_the_best_checkpoint():
    log = "2026-01-01 00:00:00 | INFO | {} | {}".format
    stats = {"valid_loss": "9.5", "valid_best_loss": "9.2", "valid_num_updates": "5"}
    done = "done training in 9.0 seconds"
    report = LogReport(best_path="run/checkpoint_best.pt")
    assert report.format_line(log("fairseq_cli.train", done)) == done  # nothing was validated
    report.format_line(log("valid", json.dumps(stats)))
    best = "lowest validation loss: 9.2 bits, in run/checkpoint_best.pt"
    assert report.format_line(log("fairseq_cli.train", done)) == f"{done}; {best}"
