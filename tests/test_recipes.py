"""Every recipe parses with fairseq's own parsers, has the settings of the paper and its release, and trains."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from fairseq import options, utils
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from conftest import PLUGIN, PYTHON, REAL_SCRIPTS_ENVIRONMENT, ROOT, SCRIPTS_ENVIRONMENT, succeed

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # the hydra of fairseq 0.12.2
    from hydra.experimental import compose, initialize_config_dir

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

RECIPES = ROOT / "recipes"
PYTHONPATH = str(ROOT) + os.pathsep + str(RECIPES)  # as lib.sh sets it

# The settings of the paper's base, base++ and large++; those of base++ are the authors' released ones.
BASE = {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072, "encoder_attention_heads": 12}
LARGE = {"encoder_layers": 24, "encoder_embed_dim": 1024, "encoder_ffn_embed_dim": 4096, "encoder_attention_heads": 16}
TABLE = {
    "pretrain_base": dict(steps=125_000, lr=5e-4, num_buckets=32, max_distance=128, model=BASE),
    "pretrain_base_plus_plus": dict(steps=2_000_000, lr=2e-4, num_buckets=64, max_distance=128, model=BASE),
    "pretrain_large_plus_plus": dict(steps=2_000_000, lr=1e-4, num_buckets=128, max_distance=256, model=LARGE),
}
WARM_UP, DECODER_LAYERS, TOKENS, EFFECTIVE_BATCH, CLIP, ADAM = 10_000, 4, 512, 2048, 2.0, ((0.9, 0.98), 1e-6, 0.01)

# A model and an update small enough to train here: the recipe's own settings otherwise.
SMALL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 64,
    "encoder_attention_heads": 2,
}
SMALL_OPTIONS = [part for key, value in SMALL.items() for part in ("--" + key.replace("_", "-"), str(value))]


def recipe(name, *arguments, real=False, **environment):
    """Runs a script of recipes/; returns the finished process."""
    return subprocess.run(
        [str(RECIPES / name), *map(str, arguments)],
        env=dict(REAL_SCRIPTS_ENVIRONMENT if real else SCRIPTS_ENVIRONMENT, **environment),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip


def program(name, *arguments, **options):
    """Runs a Python program of recipes/; returns the finished process."""
    return subprocess.run(
        [PYTHON, str(RECIPES / name), *map(str, arguments)],
        env=dict(SCRIPTS_ENVIRONMENT, PYTHONPATH=PYTHONPATH), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, **options,
    )  # fmt: skip


def dry_run(name, *arguments, **environment):
    """The command that a recipe would run: the launcher with its arguments, and the arguments of fairseq-train."""
    done = recipe(name, "--data", "/data", "--save-dir", "/save", "--dry-run", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    at = words.index("fairseq-train")
    return words[:at], words[at + 1 :]


def parse_command(arguments):
    """fairseq-train's configuration for its arguments."""
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=arguments))


def parse_yaml(name, *overrides):
    """fairseq-hydra-train's configuration for a file in recipes/hydra."""
    GlobalHydra.instance().clear()
    hydra_init(name)
    given = ["common.user_dir=" + str(PLUGIN), "task.data=/data", "checkpoint.save_dir=/save", *overrides]
    with initialize_config_dir(config_dir=str(RECIPES / "hydra")):
        config = compose(name, overrides=given)
    utils.import_user_module(config.common)
    add_defaults(config)
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))


def updates(save_dir):
    """The number of updates in a run's last checkpoint."""
    import maelm_fairseq  # noqa: F401  lets torch read it

    state = torch.load(str(save_dir / "checkpoint_last.pt"), map_location="cpu", weights_only=True)
    return state["optimizer_history"][-1]["num_updates"]


def config_of(form, name):
    if form == "sh":
        return parse_command(dry_run(name + ".sh", "--gpus", 64)[1])
    return parse_yaml(name)


@pytest.mark.parametrize("form", ["sh", "yaml"])
@pytest.mark.parametrize("name", TABLE)
def test_recipe_has_the_settings_of_the_method(name, form):
    config, setting = config_of(form, name), TABLE[name]
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


@pytest.mark.parametrize("name", TABLE)
def test_script_and_yaml_are_one_setting(name):
    command, yaml = config_of("sh", name), config_of("yaml", name)
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


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("name", TABLE)
def test_effective_batch_is_the_same_on_any_number_of_gpus(name, gpus):
    config = parse_command(dry_run(name + ".sh", "--gpus", gpus)[1])
    assert config.distributed_training.distributed_world_size == gpus
    assert config.common.fp16
    assert effective_batch(config) == EFFECTIVE_BATCH


def test_several_machines():
    launcher, arguments = dry_run("pretrain_base.sh", "--gpus=8", "--nodes=4", MASTER_ADDR="first")
    assert launcher[0] == "torchrun" and "--no-python" in launcher
    assert launcher[launcher.index("--nnodes") + 1] == "4"
    assert launcher[launcher.index("--nproc_per_node") + 1] == "8"
    config = parse_command(arguments)
    assert config.distributed_training.distributed_world_size == 32
    assert effective_batch(config) == EFFECTIVE_BATCH


def slurm(folder, *arguments, **environment):
    """Runs recipes/slurm/pretrain.sbatch as on the first of two machines; returns the finished process."""
    programs = {
        "srun": 'SLURM_STEP_ID=0 SLURM_STEP_NODELIST="node[1-2]" exec "$@"',
        "scontrol": "echo node1; echo node2",
    }
    for name, script in programs.items():
        (folder / name).write_text("#!/bin/bash\n" + script + "\n")
        (folder / name).chmod(0o755)
    environment.update(SLURM_JOB_ID="7", SLURM_NNODES="2", SLURM_PROCID="1")
    return recipe(
        "slurm/pretrain.sbatch", RECIPES / "pretrain_base.sh", "--data", "/d", "--save-dir", "/s", "--dry-run",
        *arguments, PATH=str(folder) + os.pathsep + SCRIPTS_ENVIRONMENT["PATH"], **environment,
    )  # fmt: skip


def test_slurm_starts_the_recipe_on_each_machine(tmp_path):
    done = slurm(tmp_path, SLURM_GPUS_PER_NODE="a100:4")
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    assert words[0] == "fairseq-train"  # fairseq asks SLURM for the machines, given a port
    config = parse_command(words[1:])
    assert config.distributed_training.distributed_world_size == 8
    assert config.distributed_training.distributed_port == 20014


def parse_launched(launcher, arguments, **environment):
    """The configuration of the fairseq-train that a launcher runs: a command without that word and its arguments."""
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    printed = subprocess.check_output([*launcher, *show, *arguments], env={**os.environ, **environment})
    return parse_command(json.loads(printed.splitlines()[0]))


def test_several_machines_without_gpus():
    launcher, arguments = dry_run("pretrain_base.sh", "--gpus", 0, "--nodes", 2, MASTER_ADDR="first")
    assert launcher[launcher.index("--nproc_per_node") + 1] == "1"
    config = parse_launched(launcher[-1:], arguments, RANK="1")
    assert (config.distributed_training.distributed_rank, config.distributed_training.distributed_world_size) == (1, 2)
    assert config.distributed_training.distributed_init_method == "env://"
    assert config.common.cpu and config.distributed_training.distributed_backend == "gloo"
    assert effective_batch(config) == EFFECTIVE_BATCH


def test_slurm_without_gpus(tmp_path):
    done = slurm(tmp_path, "--gpus", 0)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    assert words[0] == "bash"
    at = words.index("fairseq-train")
    config = parse_launched(words[:at], words[at + 1 :], SLURM_PROCID="1")
    assert (config.distributed_training.distributed_rank, config.distributed_training.distributed_world_size) == (1, 2)
    assert config.distributed_training.distributed_init_method == "tcp://node1:20014"
    assert config.common.cpu and effective_batch(config) == EFFECTIVE_BATCH


def test_slurm_needs_to_know_the_gpus(tmp_path):
    done = slurm(tmp_path)
    assert done.returncode == 1 and "--gpus-per-node" in done.stderr and "--gpus 0" in done.stderr


def test_further_options_override_the_recipe():
    extra = ["--lr", "3e-4", "--mask-whole-words", "--arch", "mae_lm_large"]
    for separator in ([], ["--"]):
        config = parse_command(dry_run("pretrain_base.sh", "--gpus", 1, *separator, *extra)[1])
        assert list(config.optimization.lr) == [3e-4]
        assert config.task.mask_whole_words and config.model.encoder_layers == 24


@pytest.mark.parametrize("name, extra", [("pretrain_base.sh", ["--bf16-autocast"]), ("pretrain_small.sh", [])])
def test_autocast_takes_the_place_of_fp16_on_gpus(name, extra):
    config = parse_command(dry_run(name, "--gpus", 1, *extra)[1])
    assert config.task.bf16_autocast and not config.common.fp16
    assert parse_command(dry_run("pretrain_base.sh", "--gpus", 1)[1]).common.fp16


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--gpus", 3], ["3 processes", "2048", " 1 2 4 8 16 "]),
        (["--gpus", 8, "--batch-size", 24], ["--batch-size 24", "2048", " 1 2 4 8 16 32 64 128 256"]),
        (["--gpus", "many"], ["--gpus", "many"]),
        (["--gpus", 1, "--batch-size", 0], ["--batch-size", "0"]),
        (["--gpus", 0, "--nodes", 3], ["3 processes", "2048", " 1 2 4 8 16 "]),
        (["--gpus", 0, "--nodes", 2], ["MASTER_ADDR"]),
        (["--gpus", 1, "--nodes", 2], ["MASTER_ADDR"]),
        (["--gpus"], ["--gpus needs a value"]),
        (["--gpus", 0, "--data", "/nowhere"], ["/nowhere has no dict.txt", "prepare.sh"]),
    ],
)
def test_wrong_options_are_refused(arguments, words):
    environment = {key: value for key, value in SCRIPTS_ENVIRONMENT.items() if key != "MASTER_ADDR"}
    done = subprocess.run(
        [str(RECIPES / "pretrain_base.sh"), "--data", "/data", "--save-dir", "/save", *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_more_gpus_than_there_are_are_refused(data, tmp_path):
    done = recipe("pretrain_base.sh", "--gpus", 64, "--data", data, "--save-dir", tmp_path)
    (error,) = done.stderr.splitlines()
    assert done.returncode == 1 and re.fullmatch(r"error: --gpus 64: PyTorch sees \d+ here; --gpus \d+ uses .*", error)


@pytest.mark.parametrize("name", [*TABLE, "pretrain_small", "demo/pretrain_demo"])
def test_help_is_the_header(name):
    done = recipe(name + ".sh", "--help")
    assert done.returncode == 0
    for words in ("Pretrains", "recipes/{}.sh --".format(name), "--save-dir", "--dry-run"):
        assert words in done.stdout
    assert "effective_batch=" not in done.stdout


@pytest.mark.parametrize("name", [*TABLE, "pretrain_small", "demo/pretrain_demo"])
def test_script_trains_resumes_and_stops(name, data, tmp_path):
    save = tmp_path / "a folder"
    start = [name + ".sh", "--gpus", 0, "--batch-size", 4, "--data", data, "--save-dir", save]
    start += [*SMALL_OPTIONS, "--update-freq", 1, "--log-interval", 1]
    done = recipe(*start, "--max-update", 2, real=name == "demo/pretrain_demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert updates(save) == 2
    assert "validation after 2 updates" in done.stdout and "{" not in done.stdout
    assert list((save / "tensorboard").glob("*")) and "valid_loss" in (save / "train.log").read_text()
    if name != "pretrain_base":
        return
    # A finished run stays as it is, and continues when more updates are asked for.
    assert "has finished" in recipe(*start, "--max-update", 2).stdout
    assert updates(save) == 2
    done = recipe(*start, "--max-update", 3)
    assert done.returncode == 0 and "Loaded checkpoint" in done.stdout, done.stdout + done.stderr
    assert updates(save) == 3
    # An error stops the run, and is reported in one line.
    done = recipe(*start, "--max-update", 4, "--encoder-attention-heads", 5)
    assert done.returncode == 1 and "has finished" not in done.stdout
    assert "--encoder-attention-heads" in done.stdout and "Traceback" not in done.stdout
    assert "train.log" in done.stderr


def test_script_trains_with_shared_decoder_layers(data, tmp_path):
    start = ["pretrain_base.sh", "--gpus", 0, "--batch-size", 4, "--data", data, "--save-dir", tmp_path]
    start += [*SMALL_OPTIONS, "--encoder-layers", 4, "--decoder-layers", 4, "--share-decoder-layers"]
    for last in [2, 3]:
        done = recipe(*start, "--update-freq", 1, "--max-update", last)
        assert done.returncode == 0 and updates(tmp_path) == last, done.stdout + done.stderr
    done = recipe(*start, "--max-update", 4, "--decoder-layers", 5)
    assert done.returncode == 1 and "error: --share-decoder-layers: --decoder-layers 5 must be from" in done.stdout


@pytest.mark.parametrize("shared", ["false", "true"])
@pytest.mark.parametrize("name", TABLE)
def test_yaml_trains(name, data, tmp_path, shared):
    succeed(
        "fairseq-hydra-train", "--config-dir", RECIPES / "hydra", "--config-name", name,
        "common.user_dir={}".format(PLUGIN), "task.data={}".format(data), "checkpoint.save_dir={}".format(tmp_path),
        "common.cpu=true", "common.fp16=false", "distributed_training.distributed_world_size=1",
        "dataset.batch_size=4", "optimization.update_freq=[1]", "optimization.max_update=2",
        "model.share_decoder_layers=" + shared,
        *(("" if key == "decoder_layers" else "+") + "model.{}={}".format(key, value) for key, value in SMALL.items()),
        cwd=str(tmp_path),
    )  # fmt: skip
    assert updates(tmp_path) == 2


@pytest.mark.parametrize(
    "script",
    [
        path
        for pattern in ("recipes/**/*.sh", "recipes/**/*.sbatch", "data-prep/*.sh", ".ci/run")
        for path in ROOT.glob(pattern)
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_script_is_bash(script):
    assert script.read_text().startswith("#")
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_unigram_entropy(data):
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = {
        split: [line.tolist() for line in data_utils.load_indexed_dataset(str(data / split), dictionary, "mmap")]
        for split in ("train", "valid")
    }
    # A blank line separates documents and is never predicted; <mask>, the last symbol, never occurs.
    tokens = {split: [token for line in lines[split] if len(line) > 1 for token in line] for split in lines}
    size = len(dictionary)
    bits = [-np.log2((tokens["train"].count(token) + 1) / (len(tokens["train"]) + size)) for token in tokens["valid"]]
    done = program("demo/unigram_entropy.py", "--data", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == pytest.approx(np.mean(bits), abs=1e-3)


def test_plot_loss(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    for folder in (RECIPES, RECIPES / "demo"):
        monkeypatch.syspath_prepend(str(folder))
    import plot_loss

    def plot(margin):
        monkeypatch.setattr(sys, "argv", ["plot_loss.py", *map(str, arguments), str(margin)])
        plot_loss.main()
        return capsys.readouterr().out

    log = tmp_path / "train.log"
    # A run that stopped after 200 updates and resumed from 100.
    record = "2026-01-01 00:00:00 | INFO | valid | {}\n"
    losses = [(100, 9.5), (200, 9.0), (200, 8.75), (300, 8.25)]
    log.write_text(
        "noise\n"
        + "".join(
            record.format(json.dumps({"valid_loss": str(loss), "valid_num_updates": str(update)}))
            for update, loss in losses
        )
    )
    png = tmp_path / "loss.png"
    arguments = [log, "--png", png, "--unigram-entropy", 9.25, "--margin"]
    printed = plot(margin=1)
    assert png.read_bytes().startswith(b"\x89PNG")
    plotted = [line.partition("|") for line in printed.splitlines() if "|" in line]
    # 12 rows from 9.50 to 8.25 bits and 60 columns to 300 updates: 9.50, 8.75 (the later one), 8.25.
    stars = [(row, column) for row, (_, _, cells) in enumerate(plotted) for column, c in enumerate(cells) if c == "*"]
    assert stars == [(0, 20), (7, 39), (11, 59)]
    assert {row: label.strip() for row, (label, _, _) in enumerate(plotted) if label.strip()} == {
        0: "9.50", 2: "9.25", 11: "8.25",
    }  # fmt: skip
    assert "after 300 updates: 8.250 bits" in printed
    with pytest.raises(SystemExit, match="has not learned"):
        plot(margin=1.01)
    log.write_text("noise\n")
    png.unlink()
    done = program("demo/plot_loss.py", *arguments, 1)
    assert done.returncode == 1 and not png.exists()
    (error,) = done.stderr.splitlines()
    assert error.startswith(f"error: {log}: no validation loss")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons can import the official release")
def test_official_release_on_a_new_python_is_reported_with_its_fix(tmp_path):
    package = tmp_path / "fairseq"
    package.mkdir()
    # Fails when imported, as the official release does.
    (package / "__init__.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass CommonConfig:\n    seed: int = 1\n"
        "@dataclass\nclass FairseqConfig:\n    common: CommonConfig = CommonConfig()\n"
    )
    done = subprocess.run(
        [sys.executable, str(RECIPES / "check_installation.py")],
        env=dict(os.environ, PYTHONPATH=str(tmp_path) + os.pathsep + str(ROOT)),
        stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    assert done.returncode == 1
    (error,) = done.stderr.splitlines()
    assert error.startswith("error: fairseq does not work on this Python") and "ve-fairseq" in error


def test_installation_works():
    done = program("check_installation.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_progress_shows_the_remaining_time_after_an_epoch_too():
    def log(logger, message):
        return f"2026-01-01 00:00:00 | INFO | {logger} | {message}\n"

    stats = {"num_updates": "5", "ups": "0.5", "loss": "9.1", "accuracy": "4.2", "wps": "1000"}
    update = log("train_inner", json.dumps(stats))
    lines = [
        log("fairseq_cli.train", "{'_name': None, 'optimization': {'max_update': 20}}"),
        update,
        log("train", json.dumps({"epoch": 1, "train_loss": "9.0"})),
        log("valid", json.dumps({"valid_num_updates": "5", "valid_loss": "8.8"})),
        update,
        "Traceback (most recent call last):\n",
        '  File "x.py", line 1\n',
        "ValueError: what went wrong\n",
    ]
    done = program("show_progress.py", input="".join(lines), check=True)
    shown = "update 5 of 20: loss 9.1 bits, accuracy 4.2%, 1,000 tokens/s, 0:30 left"
    after = "validation after 5 updates: loss 8.8 bits"
    assert done.stdout.splitlines() == [shown, after, shown, "ValueError: what went wrong"]
