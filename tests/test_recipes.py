"""Every recipe parses with fairseq's own parsers, has the settings that docs/pretraining.md explains, and trains."""

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
from conftest import PLUGIN, ROOT, SCRIPTS_ENVIRONMENT, error_of, refused, run_main, script
from maelm_fairseq.runs.show_progress import Progress
from maelm_fairseq.training import reporting
from training import checkpoint, train, updates

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # the hydra of fairseq 0.12.2
    from hydra.experimental import compose, initialize_config_dir

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

RECIPES, DATA = ROOT / "recipes", ["--data", "/data", "--save-dir", "/save"]

# docs/pretraining.md says where each setting comes from; those of base++ are the authors' released ones.
BASE = {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072, "encoder_attention_heads": 12}
LARGE = {"encoder_layers": 24, "encoder_embed_dim": 1024, "encoder_ffn_embed_dim": 4096, "encoder_attention_heads": 16}
TABLE = {
    "pretrain_base": dict(steps=125_000, lr=5e-4, num_buckets=32, max_distance=128, model=BASE),
    "pretrain_base_plus_plus": dict(steps=2_000_000, lr=2e-4, num_buckets=64, max_distance=128, model=BASE),
    "pretrain_large_plus_plus": dict(steps=2_000_000, lr=1e-4, num_buckets=128, max_distance=256, model=LARGE),
}
WARM_UP, DECODER_LAYERS, TOKENS, EFFECTIVE_BATCH, CLIP, ADAM = 10_000, 4, 512, 2048, 2.0, ((0.9, 0.98), 1e-6, 0.01)

ODD = "-odd \"na'me $HOME *"  # of a folder

# A model small enough to train here: the recipe's own settings otherwise.
SMALL = ["--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64]
SMALL += ["--encoder-attention-heads", 2]


def dry_run(name, *arguments, **environment):
    """The arguments of the fairseq-train that a recipe would become."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:  # there are no data, whose vocabulary memory depends on
        run_main(pretrain.main, RECIPES / name, *DATA, "--dry-run", *arguments, **environment)
    return shlex.split(printed.getvalue())[1:]


def parse_command(arguments):
    """fairseq-train's configuration for its arguments."""
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=arguments))


def parse_yaml(name, *overrides):
    """fairseq-hydra-train's configuration for a recipe."""
    variant = RECIPES / "hydra" / (name.removeprefix("pretrain_") + ".txt")
    overrides = [*(variant.read_text().split() if name != "pretrain_base" else []), *overrides]
    GlobalHydra.instance().clear()
    hydra_init("pretrain_base")
    given = ["common.user_dir=" + str(PLUGIN), "task.data=/data", "checkpoint.save_dir=/save", *overrides]
    with initialize_config_dir(config_dir=str(RECIPES / "hydra")):
        config = compose("pretrain_base", overrides=given)
    utils.import_user_module(config.common)
    add_defaults(config)
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))


@pytest.mark.parametrize("name", TABLE)
def test_recipe_has_the_settings_of_the_method(name):
    config, setting = parse_command(dry_run(name + ".sh", "--gpus", 64)), TABLE[name]
    assert config.task._name == config.criterion._name == "mae_lm"
    assert config.task.tokens_per_sample == config.model.max_positions == TOKENS
    assert config.task.sample_break_mode == "complete_doc"
    assert (config.task.mask_prob, config.task.encoder_mask_fraction) == (0.15, 0)
    assert config.task.leave_unmasked_prob == config.task.random_token_prob == 0
    assert {key: config.model[key] for key in setting["model"]} == setting["model"]
    assert config.model.relative_position_num_buckets == setting["num_buckets"]
    assert config.model.relative_position_max_distance == setting["max_distance"]
    assert config.model.decoder_layers == DECODER_LAYERS
    assert (config.model.dropout, config.model.attention_dropout, config.model.decoder_dropout) == (0.1, 0.1, 0)
    assert config.optimization.max_update == config.lr_scheduler.total_num_update == setting["steps"]
    assert list(config.optimization.lr) == list(config.lr_scheduler.lr) == [setting["lr"]]
    assert (config.lr_scheduler._name, config.lr_scheduler.warmup_updates) == ("polynomial_decay", WARM_UP)
    assert (config.lr_scheduler.power, config.lr_scheduler.end_learning_rate) == (1, 0)
    betas, eps, weight_decay = ADAM
    assert config.optimizer._name == "torch_adamw"
    assert utils.eval_str_list(str(config.optimizer.adam_betas)) == list(betas)
    assert (config.optimizer.adam_eps, config.optimizer.weight_decay) == (eps, weight_decay)
    assert config.optimization.clip_norm == CLIP
    assert effective_batch(config) == EFFECTIVE_BATCH


def effective_batch(config):
    (update_freq,) = config.optimization.update_freq
    return config.distributed_training.distributed_world_size * config.dataset.batch_size * update_freq


@pytest.mark.parametrize("name", [*TABLE, "pretrain_small"])
def test_both_command_lines_have_one_configuration(name):
    command, yaml = parse_command(dry_run(name + ".sh", "--gpus", 1)), parse_yaml(name)
    groups = ["common", "checkpoint", "dataset", "optimization", "distributed_training"]
    groups += ["task", "model", "criterion", "optimizer", "lr_scheduler"]
    for group in groups:
        one, other = (
            {key: str(value) for key, value in config[group].items() if value is not None and key[0] != "_"}
            for config in (command, yaml)
        )
        # fairseq-train fills these in from others, fairseq-hydra-train when it starts.
        for key in ("batch_size_valid", "no_seed_provided", "distributed_num_procs"):
            one.pop(key, None), other.pop(key, None)
        assert one == other, group


@pytest.mark.parametrize("gpus", [0, 4])
@pytest.mark.parametrize("by", ["slurm", "address"])
def test_several_machines(tmp_path, by, gpus):
    if by == "slurm":  # the second of two machines
        scripts = {
            "srun": 'SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NODELIST="node[1-2]" exec "$@"',
            "scontrol": "echo node1; echo node2",
        }
        for name, text in scripts.items():
            (tmp_path / name).write_text("#!/bin/bash\n" + text + "\n")
            (tmp_path / name).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", **({"SLURM_GPUS_PER_NODE": "a100:4"} if gpus else {})}
        slurm["PATH"] = str(tmp_path) + os.pathsep + SCRIPTS_ENVIRONMENT["PATH"]
        recipe = [RECIPES / "pretrain_base.sh", *DATA, "--dry-run", *([] if gpus else ["--gpus", 0])]
        arguments = shlex.split(script("recipes/slurm/pretrain.sbatch", *recipe, **slurm).stdout)[1:]
    else:  # which shows the command of the first
        machine = {"MASTER_ADDR": "node1", "MASTER_PORT": "20007"}
        arguments = dry_run("pretrain_base.sh", f"--gpus={gpus}", "--nodes=2", **machine)
    config = parse_command(arguments)
    distributed, number = config.distributed_training, int(by == "slurm")
    assert distributed.distributed_init_method == f"tcp://node1:{20007 + (by != 'slurm')}"
    ranks = [distributed.distributed_rank, distributed.distributed_world_size]
    assert ranks == ([4 * number, 8] if gpus else [number, 2])
    device = [config.common.cpu, config.common.fp16, distributed.distributed_no_spawn, distributed.distributed_backend]
    assert device == ([False, True, False, "nccl"] if gpus else [True, False, True, "gloo"])
    assert effective_batch(config) == EFFECTIVE_BATCH


def test_further_options_override_the_recipe():
    extra = ["--lr", "3e-4", "--mask-whole-words", "--arch", "mae_lm_large", "--bf16-autocast"]
    extra += ["--lr-scheduler=tri_stage", "--warmup-steps", 10, "--optimizer", "sgd"]
    config = parse_command(dry_run("pretrain_base.sh", "--gpus", 1, "--", *extra))
    assert (config.lr_scheduler._name, config.lr_scheduler.warmup_steps) == ("tri_stage", 10)
    assert config.optimizer._name == "sgd" and config.criterion._name == "mae_lm"
    assert list(config.optimization.lr) == [3e-4]
    assert config.task.mask_whole_words and config.model.encoder_layers == 24
    assert config.task.bf16_autocast and not config.common.fp16


@pytest.mark.parametrize("name, warmup, fade", [("pretrain_small", 67, 167), ("pretrain_base", 240, 0)])
def test_updates_scale_what_belongs_to_them(name, warmup, fade):
    """Options that are given win."""
    config = parse_command(dry_run(name + ".sh", "--gpus", 1, "--updates", 3000))
    assert config.optimization.max_update == config.lr_scheduler.total_num_update == 3000
    assert config.lr_scheduler.warmup_updates == warmup
    assert config.task.encoder_mask_fade_updates == fade
    assert 0 < config.checkpoint.save_interval_updates <= 750
    config = parse_command(dry_run(name + ".sh", "--gpus", 1, "--updates", 10, "--warmup-updates", 7))
    assert config.lr_scheduler.warmup_updates == 7
    assert config.checkpoint.save_interval_updates == 3


def test_first_updates_say_how_long_the_others_take(monkeypatch, caplog):
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(reporting.time, "monotonic", lambda: next(clock))
    caplog.set_level("INFO", logger=reporting.__name__)
    first_updates = reporting.FirstUpdates()
    for update in range(101, 201):
        first_updates.report(update, 1101)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "update 101 of 1,101 is made"
    assert lines[1] == "update 110 of 1,101: 2 seconds an update, 0:33:02 left"
    assert lines[2] == "update 125 of 1,101: 2 seconds an update, 0:32:32 left"
    assert len(lines) == 3


def test_the_small_recipe_and_the_demo():
    (demo,) = re.findall(r"^options=\(([^)]*)\)", (RECIPES / "demo" / "demo.sh").read_text(), re.M)
    options = [[], demo.split(), ["--no-share-decoder-layers", "--decoder-relative-bias"]]
    config, demo, own = (parse_command(dry_run("pretrain_small.sh", "--gpus", 0, *more)) for more in options)
    assert config.common.cpu and config.task.bf16_autocast and not config.common.fp16
    assert (effective_batch(config), effective_batch(demo), demo.model.max_positions) == (64, 32, 64)
    assert config.model.share_decoder_layers and not own.model.share_decoder_layers and own.model.decoder_relative_bias
    assert "--fp16" in dry_run("pretrain_base.sh", "--gpus", 1)
    assert "--fp16" not in dry_run("pretrain_base.sh", "--gpus", 1, "--no-fp16")


def test_a_recipe_on_one_machine_is_alone_whatever_has_started_it(data, tmp_path, monkeypatch):
    """Containers and SLURM set variables by which fairseq would take it for one of several processes."""
    begun = []
    program = SimpleNamespace(cli_main=lambda: begun.append(dict(os.environ)))
    monkeypatch.setattr(pretrain, "load_fairseq_train", lambda: program)
    around = {"WORLD_SIZE": "8", "RANK": "0", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_STEP_NODELIST": "node[1-2]"}
    paths = ["--data", data, "--save-dir", tmp_path, "--gpus", 0]
    run_main(pretrain.main, RECIPES / "pretrain_small.sh", *paths, **around)
    assert {*around} & {*begun[0]} == {"RANK"}


def test_help_has_the_plugins_options(tmp_path):
    """Also of a recipe that is called through a link, by users whose `cd` prints."""
    (tmp_path / "link").symlink_to(ROOT / "recipes/pretrain_small.sh")
    printed = script(str(tmp_path / "link"), "--help", CDPATH=str(ROOT)).stdout
    assert "\n  --share-decoder-layers  " in printed and "\n  --encoder-mask-fade-updates  " in printed


@pytest.mark.parametrize("arguments, words", [
    (["--gpus", 8, "--batch-size", 24], ["8 process(es)", "--batch-size 24", "divide the effective batch of 2048"]),
    (["--gpus", "many"], ["--gpus: expected a whole number from 0 to 2147483647, found 'many'"]),
    (["--gpus", 2048, "--batch-size", 1], ["--gpus 2048: PyTorch sees"]),
    (["--gpus", 1, "--nodes", 2, "--dry-run"], ["MASTER_ADDR"]),
    (["--save-dir", "\udcff"], ["--save-dir: \\udcff: TensorBoard needs names in UTF-8"]),
    (["--data", "/nowhere:"], ["--data /nowhere:: found no dict.txt in '/nowhere'", "prepare.sh"]),
    (["--save-dir", ""], ["found an empty value among the options"]),
])  # fmt: skip
def test_wrong_options_are_refused(arguments, words):
    recipe = [RECIPES / "pretrain_base.sh", *DATA]
    error = error_of(pretrain.main, *recipe, *arguments, MASTER_ADDR="", CUDA_VISIBLE_DEVICES="")
    assert all(word in error for word in words), error


def test_an_unknown_machine_is_refused(data, tmp_path):
    more = ["--gpus", 0, "--nodes", 2, "--data", data, "--save-dir", tmp_path]
    error = refused("recipes/pretrain_base.sh", *more, MASTER_ADDR="no.such.invalid")
    assert "MASTER_ADDR=no.such.invalid: " in error


def test_script_trains_resumes_and_stops(data, tmp_path):
    save, text = tmp_path / ODD, tmp_path / (ODD + "data")
    text.symlink_to(data)
    start = ["recipes/pretrain_base.sh", "--gpus", 0, "--batch-size", 4, "--data", text, "--save-dir", save]
    start += [*SMALL, "--update-freq", 1, "--log-interval", 1, "--max-update"]
    printed = script(*start, 2).stdout
    assert updates(save) == 2
    assert "validation after 2 updates" in printed and "{" not in printed
    assert list((save / "tensorboard").glob("*")) and "valid_loss" in (save / "train.log").read_text()
    # The same command again finds nothing to do, and resumes when more updates are asked for.
    assert "\nupdate " not in script(*start, 2).stdout and updates(save) == 2
    assert "Loaded checkpoint" in script(*start, 3).stdout and updates(save) == 3
    closed = ["bash", "-c", '"$@" 2>&-', "-", ROOT / start[0], *start[1:], 3, "--dry-run"]
    assert subprocess.run(list(map(str, closed)), capture_output=True, env=SCRIPTS_ENVIRONMENT).stdout
    # fairseq would take a folder with a colon in its name for two.
    (tmp_path / "c:d").symlink_to(data)
    assert "separates folders by colons" in refused(*start, 4, "--data", tmp_path / "c:d")
    # fairseq's own errors are one line, too; the log has their stack trace.
    assert "unrecognized arguments: --max-updates 5" in refused(*start, 4, "--max-updates", 5)
    assert "--encoder-attention-heads" in refused(*start, 4, "--encoder-attention-heads", 5)
    assert "Traceback" in (save / "train.log").read_text()


def test_token_frequencies_are_the_yardstick(data, tmp_path):
    # A blank line separates documents and is never predicted; <mask>, the last symbol, never occurs.
    dictionary, tokens = Dictionary.load(str(data / "dict.txt")), {}
    for split in ("train", "valid"):
        lines = data_utils.load_indexed_dataset(str(data / split), dictionary, "mmap")
        tokens[split] = [token for line in lines if len(line) > 1 for token in line.tolist()]
    size = len(tokens["train"]) + len(dictionary) + 1
    entropy = np.mean([-np.log2((tokens["train"].count(token) + 1) / size) for token in tokens["valid"]])
    log = train(data, tmp_path, "--num-workers", 1, "--max-update", 1)
    assert f"unigram_bits {entropy:.3f}: " in log
    assert checkpoint(tmp_path)["task_state"]["unigram_bits"] == pytest.approx(entropy)
    report = Progress()
    shown = "\n".join(filter(None, map(report.line, log.splitlines())))
    assert f"% (no better than token frequencies, {entropy:.3f})" in shown


def test_progress_shows_the_remaining_time_after_an_epoch_too():
    log = "2026-01-01 00:00:00 | INFO | {} | {}".format
    stats = {"num_updates": "5", "ups": "0.5", "loss": "9.1", "accuracy": "4.2", "wps": "1000", "lr": "5e-4"}
    update = log("train_inner", json.dumps(stats))
    limit = "Stopping training due to cumulative_training_time: 0.0751 > stop_time_hours: 0.075 hour(s)"
    lines = [
        log("fairseq_cli.train", "{'_name': None, 'optimization': {'max_update': 20}}"),
        update,
        log("train", '{"epoch": 1, "train_loss": "9.0"}'),
        update,
        log("fairseq_cli.train", limit),
    ]
    shown = "update 5 of 20: loss 9.1 bits, accuracy 4.2%, learning rate 5e-4, 1,000 tokens/s, 0:00:30 left"
    stops = "stopping before the last update: the training has taken the 0.075 hours of --stop-time-hours"
    assert list(map(Progress().line, lines)) == [None, shown, None, shown, stops]
