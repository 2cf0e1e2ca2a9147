"""What the miniature runs: names, titles and options of all runs, and all jobs, written down a second time."""

import sys

import pytest

from conftest import ROOT
from maelm_fairseq.errors import UsageError

sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "recipes" / "miniature")]
import experiment  # noqa: E402
from run import reproduce  # noqa: E402

COMMON = """
--task mae_lm --criterion mae_lm --arch mae_lm_tiny {size} --dropout 0 --attention-dropout 0 --max-positions {tokens}
--tokens-per-sample {tokens} --batch-size {batch} --batch-size-valid 64 --num-workers 0 --bf16-autocast
--optimizer torch_adamw --adam-betas (0.9, 0.98) --adam-eps 1e-06 --weight-decay 0.01 --clip-norm 2.0
--lr-scheduler polynomial_decay --lr 0.001 --warmup-updates 200 --total-num-update 2000 --max-update 2000
--distributed-world-size 1 --log-format json --log-interval 50 --save-interval-updates {part} --no-epoch-checkpoints
"""
SIZES = {
    "MINIATURE": dict(
        size="--encoder-layers 4 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4",
        tokens=64, batch=32, part=500,
    ),
    "TINY": dict(
        size="--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2",
        tokens=32, batch=8, part=1000,
    ),
}  # fmt: skip
BIAS, NO_BIAS = "--decoder-relative-bias --relative-position-local-init", "--relative-position-num-buckets 0"
SHARE = "share of masks in the encoder: "
RUNS = {  # name, title, decoder layers, mask probability, share of masks in the encoder, bias, seed, tokens for ranks
    "MINIATURE": [
        ("mlm-1", "MLM", 0, 0.3, 1.0, BIAS, 1, 20000),
        ("mae_lm-1", "MAE-LM", 2, 0.3, 0.0, BIAS, 1, 20000),
        ("mlm-2", "MLM", 0, 0.3, 1.0, BIAS, 2, 20000),
        ("mae_lm-2", "MAE-LM", 2, 0.3, 0.0, BIAS, 2, 20000),
        ("fraction-0.25", SHARE + "0.25", 2, 0.3, 0.25, BIAS, 1, 0),
        ("fraction-0.5", SHARE + "0.5", 2, 0.3, 0.5, BIAS, 1, 0),
        ("fraction-0.75", SHARE + "0.75", 2, 0.3, 0.75, BIAS, 1, 0),
        ("fraction-1", SHARE + "1", 2, 0.3, 1.0, BIAS, 1, 0),
        ("decoder-1", "decoder layers: 1", 1, 0.3, 0.0, BIAS, 1, 0),
        ("decoder-4", "decoder layers: 4", 4, 0.3, 0.0, BIAS, 1, 0),
        ("mask-prob-0.15", "mask probability: 0.15", 2, 0.15, 0.0, BIAS, 1, 0),
        ("mask-prob-0.5", "mask probability: 0.5", 2, 0.5, 0.0, BIAS, 1, 0),
        ("no-relative-bias", "no relative position bias", 2, 0.3, 0.0, NO_BIAS, 1, 0),
    ],
    "TINY": [
        ("mlm-1", "MLM", 0, 0.3, 1.0, BIAS, 1, 400),
        ("mae_lm-1", "MAE-LM", 2, 0.3, 0.0, BIAS, 1, 400),
        ("mlm-2", "MLM", 0, 0.3, 1.0, BIAS, 2, 400),
        ("mae_lm-2", "MAE-LM", 2, 0.3, 0.0, BIAS, 2, 400),
        ("fraction-0.5", SHARE + "0.5", 2, 0.3, 0.5, BIAS, 1, 0),
        ("decoder-1", "decoder layers: 1", 1, 0.3, 0.0, BIAS, 1, 0),
        ("mask-prob-0.5", "mask probability: 0.5", 2, 0.5, 0.0, BIAS, 1, 0),
        ("no-relative-bias", "no relative position bias", 2, 0.3, 0.0, NO_BIAS, 1, 0),
    ],
}


@pytest.mark.parametrize("variant", ["MINIATURE", "TINY"])
def test_the_runs_of_the_experiment(variant):
    trial = getattr(experiment, variant)
    runs = trial.compared() + trial.varied()
    assert [(run.name, run.title) for run in runs] == [row[:2] for row in RUNS[variant]]
    common = " ".join(COMMON.format(**SIZES[variant]).split())
    for run, (_, _, layers, mask_prob, fraction, bias, seed, tokens) in zip(runs, RUNS[variant]):
        expected = f"{common} --decoder-layers {layers} --mask-prob {mask_prob} --leave-unmasked-prob 0.0 "
        expected += f"--random-token-prob 0.0 --encoder-mask-fraction {fraction} {bias} --seed {seed}"
        expected += f" --effective-rank-tokens {tokens}" * bool(tokens)
        assert " ".join(run.options(2000)) == expected
    assert trial.part_updates(2000) == ({1: 500, 2: 1000, 3: 1500} if variant == "MINIATURE" else {1: 1000})
    assert (runs[0].part_name(1), runs[0].finetuned_name) == ("mlm-1-part1", "mlm-1-finetuned")
    assert " ".join(trial.finetune_options()) == (
        "--task trec --seeds 1 --batch-size 32 --lr 0.0005 --warmup-ratio 0.1 --epochs 3"
    )


@pytest.mark.parametrize(
    "options, own",
    [([], ["text", "data", "labelled texts", "speed"]), (["--updates", 2000], ["text", "data", "labelled texts"])],
)
def test_all_jobs_of_the_miniature(tmp_path, capsys, options, own):
    options = options or ["--minutes-per-model", 10]
    reproduce(["--dest", str(tmp_path / "dest"), *map(str, options), "--dry-run"])
    printed = capsys.readouterr().out.splitlines()
    compared, once = "mlm-1, mae_lm-1, mlm-2, mae_lm-2", ("mlm-1", "mae_lm-1")
    parts = [f"{run}-part{k}" for run in once for k in (1, 2, 3)]
    varied = [row[0] for row in RUNS["MINIATURE"][4:]]
    ranks = [compared, *(f"{run}-finetuned" for run in once), *varied]
    assert printed == [
        f"0 of {len(own) + 13 + 15 + 19 + 1 + 2} jobs are done",
        *(f"  {name}: 0 done; to do: {name}" for name in own),
        f"  pretrain: 0 done; to do: {compared}, {', '.join(varied)}",
        f"  ranks: 0 done; to do: {', '.join(ranks)}",
        f"  evaluate: 0 done; to do: {', '.join([compared, *varied, *parts])}",
        "  encode: 0 done; to do: trec",
        f"  finetune: 0 done; to do: {', '.join(once)}",
    ]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--updates", 8, "--minutes-per-model", 1], "not allowed with argument"),
        ([], "--minutes-per-model --updates is required"),
        (["--updates", 1], "--updates 1 must be at least 2"),
        (["--minutes-per-model", 0], "--minutes-per-model 0.0 must be over 0"),
        (["--updates", 8, "--seeds", 0], "--seeds 0 must be over 0"),
        (["--updates", 8, "--tasks", "nowhere"], "no task in it"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError) as raised:
        reproduce(["--dest", str(tmp_path / "dest"), "--tiny", *map(str, options)])
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "dest").exists()
