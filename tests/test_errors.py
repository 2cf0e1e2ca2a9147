"""Wrong input: one clear error, exit status 1."""

import os
import shutil
import subprocess
from dataclasses import dataclass

import pytest

import maelm_fairseq.plugin  # noqa: F401  registers our options
from conftest import (
    PLUGIN,
    PYTHON,
    ROOT,
    TINY,
    TINY_MODEL,
    VALIDATE,
    binarize,
    documents,
    hydra,
    refuses,
    run,
    text_of,
)
from maelm_fairseq.base.option_fields import setting
from maelm_fairseq.fairseq_api import (
    FairseqDataclass,
    convert_namespace_to_omegaconf,
    criterions,
)
from maelm_fairseq.runs.fairseq_args import parse_fairseq_args
from maelm_fairseq.training import option_checks
from stoppable_runs import free_port
from training import error_of_command

WITHOUT_DECODER = "--decoder-layers 0 --encoder-mask-fraction 1"


def test_ranges_of_the_options_of_a_criterion(data, monkeypatch):
    @dataclass
    class WeightedConfig(FairseqDataclass):
        weight: float = setting(1.0, "of the loss", minimum=0)

    options = list(map(str, [data, *TINY]))
    cfg = convert_namespace_to_omegaconf(parse_fairseq_args(options))
    monkeypatch.setitem(criterions.CRITERION_DATACLASS_REGISTRY, "mae_lm", WeightedConfig)
    cfg.criterion = WeightedConfig(_name="mae_lm", weight=0.5)
    option_checks.check_run_options(cfg)
    cfg.criterion.weight = -1
    refuses("--weight -1.0 must be from 0", option_checks.check_run_options, cfg)


@pytest.mark.parametrize("options, message", [
    ("--decoder-layers 0", "--decoder-layers 0 needs --encoder-mask-fraction 1"),
    (f"{WITHOUT_DECODER} --encoder-mask-fade-updates 5", "contradicts --encoder-mask-fade"),
    ("--best-checkpoint-metric f2", "f2: validation logs loss, "),
    ("--best-checkpoint-metric accuracy", "accuracy needs --maximize-best-checkpoint-metric"),
    ("--maximize-best-checkpoint-metric", "the lowest loss is the best; leave it out"),
    ("--max-update 42", "--max-update 42 is beyond --total-num-update 40"),
    ("--distributed-world-size 2", "2 processes were requested"),
    ("--lr 0", "--lr 0.0 must be over --stop-min-lr"),
    ("--update-freq 2,0", "--update-freq 0 must be from 1 to"),
    ("--max-update x", "argument --max-update: invalid int value: 'x'"),
    ("--nonsense 3", "unrecognized arguments: --nonsense 3 (--help"),
    ("--max-updates 3", "unrecognized arguments: --max-updates 3 (did you mean --max-update? "),
    ("--seed 4294967293 --max-epoch 3", "--seed 4294967293 must be from 0 to 2,147,483,647"),
    ("--batch-size 0", "--batch-size 0 must be from 1 to"),
    ("--weight-decay -1", "--weight-decay -1.0 must be a finite number, at least 0"),
    ("--validate-interval 0", "--validate-interval 0 must be from 1 to"),
    ("--optimizer torch_adamw --lr-layer-decay 0",
     "--lr-layer-decay 0.0 must be greater than 0 and at most 1"),
    ("--optimizer torch_adamw --lr-layer-decay nan", "--lr-layer-decay nan must be"),
    ("--clip-norm nan", "--clip-norm nan must be a finite number, at least 0"),
    ("--stop-min-lr nan", "--stop-min-lr nan must be a finite number"),
    ("--weight-decay nan", "--weight-decay nan must be a finite number"),
    ("--adam-betas (0.5,2)", "--adam-betas (0.5,2): expected two numbers from 0 to less than 1"),
    ("--criterion cross_entropy",
     "--criterion cross_entropy is fairseq's own and cannot train this model"),
    ("--fp16", "--fp16 needs a GPU"),
    ("--stop-min-lr 1e-9",
     "--stop-min-lr 1e-09: the warm-up begins below it, and nothing would be trained"),
    ("--write-checkpoints-asynchronously", "leaves incomplete files"),
    ("--lr 5e-4x", "an option has the value '5e-4x', expected a number or a list"),
])  # fmt: skip
def test_options(data, tmp_path, options, message):
    """Those of the task and of the model, also those that the data rule out.

    Others are in test_task.py.
    """
    assert message in error_of_command(data, *TINY, "--save-dir", tmp_path, *options.split())


@pytest.mark.parametrize("options, message", [
    (VALIDATE[:-2], "Must specify batch size"),
    (VALIDATE, "--path is missing"),
    (["--user-dir", PLUGIN], "KeyError: for no reason given; are --arch, --task and --criterion "),
    ([*VALIDATE, "--path", "nosuch.pt"], "nosuch.pt: not found, expected a checkpoint"),
])  # fmt: skip
def test_validation(data, options, message):
    assert error_of_command(data, *options, program="fairseq-validate").startswith(
        f"error: {message}"
    )


def test_no_architecture(data):
    assert "are --arch, --task and --criterion there?" in error_of_command(data, *TINY[:2])


def test_missing_data(data, tmp_path):
    arguments = [*TINY, "--save-dir", tmp_path / "run"]
    error = error_of_command(tmp_path / "nosuch", *arguments)
    assert f"{tmp_path}/nosuch/dict.txt: not found (no such folder)" in error
    shutil.copy(data / "dict.txt", tmp_path)
    assert f"{tmp_path}/valid.idx: not found" in error_of_command(tmp_path, *arguments)


def test_a_dictionary_that_is_not_the_vocabularys(pretrained, tmp_path):
    """It is refused before training, since nothing could be done with the model afterwards."""
    data = shutil.copytree(pretrained[0], tmp_path / "data")
    first, second, *others = (data / "dict.txt").read_bytes().splitlines(keepends=True)
    (data / "dict.txt").write_bytes(b"".join([second, first, *others]))
    error = error_of_command(data, *TINY, "--save-dir", tmp_path / "run")
    fault = "its 102 symbols differ from those of the dict.txt beside it"
    assert f"{data}/sentencepiece.model: {fault}" in error


@pytest.mark.parametrize("name", ["dict.txt", "train.idx", "valid.bin", "sentencepiece.model"])
def test_pipes_and_devices_in_the_place_of_files(pretrained, tmp_path, name):
    data = shutil.copytree(pretrained[0], tmp_path / "data")
    (data / name).unlink()
    os.mkfifo(data / name)
    assert f"{data}/{name}" in error_of_command(data, *TINY, "--save-dir", tmp_path / "run")


def test_folders_that_take_turns(data, tmp_path):
    text = text_of(documents(5, 3))
    options = [*TINY, "--save-dir", tmp_path / "run"]
    other = binarize(tmp_path / "other", {"train": text})
    assert f"{other}/dict.txt differs from that of {data}" in error_of_command(
        f"{data}:{other}", *options
    )
    valid = binarize(tmp_path / "valid", {"valid": text}, data / "dict.txt")
    assert f"{valid}/train.idx: not found" in error_of_command(f"{data}:{valid}", *options)
    for ending in ["bin", "idx"]:
        shutil.copy(data / f"train.{ending}", valid)
    os.truncate(valid / "train.idx", 100)
    assert f"{valid}/train.idx has 100 bytes" in error_of_command(f"{data}:{valid}", *options)


def test_mask_in_the_data(tmp_path):
    """The error comes from a loader worker."""
    text = text_of(documents(5, 3))
    symbols = sorted(set(text.split())) + ["<mask>"]
    folder = binarize(tmp_path / "data", {"train": text + "kan <mask>\n\n", "valid": text}, symbols)
    error = error_of_command(folder, *TINY, "--save-dir", tmp_path / "run", "--num-workers", 2)
    assert f"{folder}/train: <mask> in block" in error


def test_checkpoint_of_another_size_or_vocabulary(pretrained, tmp_path):
    data, checkpoint = pretrained
    restore = ["--save-dir", tmp_path / "run", "--restore-file", checkpoint]
    error = error_of_command(
        data, *TINY, *restore, "--encoder-layers", 3, "--relative-position-num-buckets", 8
    )
    assert "--encoder-layers 2 in the checkpoint, 3 here;" in error
    assert "; --relative-position-num-buckets 32 in the checkpoint, 8 here" in error
    symbols = [line.split()[0] for line in (data / "dict.txt").read_text().splitlines()]
    text = text_of(documents(5, 3))
    other = binarize(tmp_path / "other", {"train": text, "valid": text}, symbols[::-1])
    error = error_of_command(other, *TINY, *restore)
    assert (
        "trained with another dict.txt, of 102 symbols with special ones and <mask>; this one "
        in error
    )


def test_hydra(data, tmp_path):
    options = [*hydra(tmp_path, data, TINY_MODEL), "+task.mask_prob=2"]
    error = error_of_command(*options, program="fairseq-hydra-train")
    assert error == "error: --mask-prob 2.0 must be greater than 0 and less than 1"


# fairseq-train, where torch pretends to have two GPUs: one process that starts two.
SPAWN = """
import torch
torch.cuda.device_count = lambda: 2
from fairseq_cli.train import cli_main
cli_main()
"""


def test_in_the_process_of_each_gpu(data, tmp_path):
    options = ["--distributed-backend", "gloo", "--distributed-world-size", 2, "--mask-prob", 2]
    options += [
        "--distributed-init-method",
        f"tcp://localhost:{free_port()}",
        "--save-dir",
        tmp_path,
    ]
    error = error_of_command("-c", SPAWN, data, *TINY, *options, program="python")
    assert error == "error: --mask-prob 2.0 must be greater than 0 and less than 1"


# Fails with an error that has nothing to do with the input, before the first update or after it.
BUG = """
import fairseq_cli.train, maelm_fairseq
from maelm_fairseq.training.run_state import current_run
current_run.was_trained = {}
{{}}["other"]
"""


@pytest.mark.parametrize(
    "trained, variable", [(False, None), (True, None), (False, "MAELM_TRACEBACK")]
)
def test_other_errors(monkeypatch, trained, variable):
    """Before the first update, a line names their type.

    After it, or on request, their stack trace is shown.
    """
    if variable:
        monkeypatch.setenv(variable, "1")
    done = run("python", "-c", BUG.format(trained))
    assert done.returncode == 1
    assert "KeyError: 'other'" in done.stdout
    assert ("Traceback" in done.stdout) == (trained or variable is not None)
    line = "error: KeyError: 'other' (MAELM_TRACEBACK=1 shows where)"
    assert (line in done.stdout) == (not trained)


# Started by our own processes alone, with arguments that no user writes.
STARTED_BY_OTHERS = {
    "maelm_fairseq/runs/gpu_memory.py",
    "maelm_fairseq/huggingface/export_checks.py",
}
CALLED_BY_SCRIPTS = {
    "recipes/finetune.py": "run one of finetune_sentences.sh, ",
    "recipes/pretrain.py": "run one of pretrain_",
}
FOLDERS_OF_PROGRAMS = ["maelm_fairseq", "recipes", "data-prep", "experiments", "benchmarks"]


def programs():
    """The paths of all programs that users may start."""
    paths = []
    for folder in FOLDERS_OF_PROGRAMS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if 'if __name__ == "__main__":' in path.read_text() and name not in STARTED_BY_OTHERS:
                paths.append(name)
    return paths


@pytest.mark.parametrize("path", programs())
def test_a_program_that_is_asked_for_help(path, tmp_path):
    """It helps, or says which script to run; it writes no file."""
    if path.startswith("maelm_fairseq/"):
        program = [PYTHON, "-m", path.removesuffix(".py").replace("/", ".")]
    else:
        program = [PYTHON, str(ROOT / path)]
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run([*program, "--help"], cwd=tmp_path, **streams)
    if path in CALLED_BY_SCRIPTS:
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert CALLED_BY_SCRIPTS[path] in done.stderr
        assert done.stderr.count("\n") == 1
    else:
        assert done.returncode == 0, done.stderr
        assert "usage: " in done.stdout
        assert not done.stderr
    assert not list(tmp_path.iterdir())
