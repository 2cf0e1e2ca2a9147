"""Evaluates pretrained encoders with linear probes of their frozen features, and with minimal
pairs.

For each model and task: the features of every layer, averaged over all tokens but `<s>`, and at
`<s>`; a ridge classifier or ridge regression with 5-fold cross-validation over all labelled
examples, with the same folds for every model. Features are standardised, and the regularisation
and the layer selected, inside the training folds. The score is the accuracy in percent or 100 x
Pearson's correlation. Few-shot probes train on 8, 32 and 128 examples per class. Every table of
scores has a row for a bag of words, which needs no encoder, and one for the most frequent class.

Minimal pairs (--pairs) need no training: of two sentences, the model should find the good one more
probable, by the pseudo-log-likelihood of hub.score; the score is the share of pairs in percent,
ties as half.

Writes DEST/MODEL.npz, with the outcome of each example; DEST/scores.csv, one row for each score of
all models in DEST; and DEST/evaluation.md, for the models and tasks of the command. The same
command resumes.
"""

import itertools
import os
import subprocess
import sys

import numpy as np
from tqdm import tqdm

from ..base.destinations import check_output_folder
from ..base.errors import UsageError
from ..base.files import check_absent
from ..base.locks import one_at_a_time
from ..base.opening import open_to_read
from ..base.provenance import sha256
from ..base.typed_values import short_repr
from ..checkpoints.building import default_device, find_checkpoint_file
from ..finetuning.labelled_files import find_file
from ..finetuning.sentence_files import SENTENCE_FILES
from ..precision import autocast, computes_in_bfloat16
from .features import EncoderSource, compute_features
from .few_shot import SHOTS, has_few_shot, score_few_shot_probes
from .minimal_pairs import check_pairs_fit, decide_pairs
from .model_record import GROUPS_KEY, PAIRS_FEATURE, TEXT_FEATURE, ModelRecord, record_files
from .options import parse_args
from .probe_baselines import BASELINES, record_baselines
from .probe_tasks import read_probe_task
from .probes import RIDGE_ALPHAS, probe_all_layers, score_predictions
from .tables import FIRST_LINES, record_path, write_tables


def folder_of_tasks(args):
    """The folder of the tasks: the user's, or where they are fetched to."""
    return args.labelled or os.path.join(args.dest, "labelled")


def load_tasks(args, fetch):
    """The `probe_tasks.ProbeTask` of each name, fetched by the program `fetch` if need be."""
    folder = folder_of_tasks(args)
    if args.tasks and not args.labelled:
        command = [sys.executable, fetch, "--dest", folder, "--data", *args.tasks]
        if subprocess.run(command).returncode:
            fault = "not fetched (see above); give texts of your own by --labelled"
            raise UsageError(f"--tasks {' '.join(args.tasks)}: {fault}")
    tasks = []
    for name in args.tasks:
        tasks.append(
            read_probe_task(os.path.join(folder, name), regression=name in args.regression)
        )
    return tasks


def record_probes(record, encoder, task, repeats, side_by_side):
    """Probes the frozen features of an encoder on a task, unless that is recorded.

    Args:
        record: `ModelRecord`
        encoder: `EncoderSource`
        repeats: how often few-shot probes are repeated
    """
    origin_of_probes = {"task": task.compute_sha256(), "probes": f"ridge {RIDGE_ALPHAS}"}
    origins = {"mean": origin_of_probes, "first": origin_of_probes}
    if side_by_side:
        origins["side_by_side"] = origin_of_probes
    if repeats and has_few_shot(task):
        origins["few_shot"] = {**origin_of_probes, "repeats": f"{SHOTS} {repeats}"}
    missing = [
        name for name, origin in origins.items() if not record.is_recorded(task.name, name, origin)
    ]
    features = compute_features(encoder.model, task.texts) if missing else {}
    for name in missing:
        if name == "few_shot":
            arrays = {name: score_few_shot_probes(features["mean"], task, repeats)}
        elif name == "side_by_side":
            side_by_side_layers = np.concatenate(features["mean"][1:], axis=-1)
            arrays = {name: probe_all_layers(side_by_side_layers[None], task)["predictions"]}
        else:
            probed = probe_all_layers(features[name], task)
            arrays = {name: probed["predictions"], f"{name}/layers": probed["layers"]}
        shared = {"targets": task.targets, "folds": task.folds}
        record.write(task.name, name, origins[name], {**shared, **arrays})


def evaluate(args, fetch):
    """Evaluates and reports.

    Args:
        args: from `options.parse_args`
        fetch: as for `main`
    """
    encoders = {}
    for name, path in zip(args.names, args.checkpoint):
        encoders[name] = EncoderSource(find_checkpoint_file(path), args.data)
        if args.pairs and not encoders[name].info.has_lm_head:
            raise UsageError(
                f"--checkpoint {path}: found a fine-tuned model, which predicts no masked tokens; "
                "--pairs needs a pretrained one"
            )
    tasks = load_tasks(args, fetch)
    check_not_trained_on(encoders, args)
    records = {
        name: ModelRecord(record_path(args, name), encoder.sha256s)
        for name, encoder in encoders.items()
    }
    pairs_to_decide = find_undecided_pairs(args, encoders, records)
    to_probe = [*itertools.product(encoders, tasks)]
    for name, task in tqdm(to_probe, "probes", unit="task", disable=None):
        record_probes(records[name], encoders[name], task, args.few_shot_repeats, args.side_by_side)
        layers = layers_in_words(records[name].arrays[f"{task.name}/mean/layers"])
        tqdm.write(f"{score_in_words(records[name], task, 'mean')} (features: {layers})")
    baselines = {}
    if tasks:
        baselines = {name: ModelRecord(record_path(args, name), name) for name in BASELINES}
    for task in tqdm(tasks, "baselines", unit="task", disable=None):
        record_baselines(baselines, task, args.few_shot_repeats)
        for record in baselines.values():
            tqdm.write(f"{score_in_words(record, task, TEXT_FEATURE)} (no encoder)")
    for name, pairs, origin in pairs_to_decide:
        print(f"{pairs.name}: {name} decides {len(pairs.good):,} pairs", flush=True)
        model = encoders[name].model
        with autocast(args, model.device):
            decisions = decide_pairs(model, pairs)
        arrays = {PAIRS_FEATURE: decisions, GROUPS_KEY: pairs.groups}
        records[name].write(pairs.name, PAIRS_FEATURE, origin, arrays)
    write_tables(args, tasks, list(records.values()), list(baselines.values()))


def find_undecided_pairs(args, encoders, records):
    """The minimal pairs whose decisions are not recorded, checked before any work.

    Returns: list of (name of the encoder, `pair_files.Pairs`, origin of the decisions)
    """
    undecided = []
    for name, pairs in itertools.product(encoders, args.pairs):
        origin = origin_of_decisions(pairs, args, default_device())
        if not records[name].is_recorded(pairs.name, PAIRS_FEATURE, origin):
            check_pairs_fit(encoders[name].model, pairs)
            undecided.append((name, pairs, origin))
    return undecided


def origin_of_decisions(pairs, args, device):
    """What decisions of minimal pairs are made from, apart from the model: a dict."""
    origin = {"pairs": pairs.sha256}
    if computes_in_bfloat16(args, device):
        origin["precision"] = "bfloat16"
    return origin


def check_not_trained_on(encoders, args):
    """Refuses encoders, {name: `EncoderSource`}, that were fine-tuned on examples of a task.

    Their features know these examples' labels, and would score too high.
    """
    files = {}
    for task in args.tasks:
        path = find_file(os.path.join(folder_of_tasks(args), task), "train", SENTENCE_FILES)
        files[sha256(path)] = path
    for encoder in encoders.values():
        for path in filter(None, map(files.get, encoder.info.train_files_sha256)):
            raise UsageError(
                f"--checkpoint {encoder.checkpoint_file}: it was fine-tuned on {path}, which it "
                "would be evaluated on; give a pretrained model, or leave that task out"
            )


def score_in_words(record, task, feature):
    """The score of a recorded predictor, with the names of predictor, task and metric."""
    value = score_predictions(record.predictions(task.name, feature), task.targets)
    return f"{record.model}, {task.name}: {task.metric} {value:.2f}"


def layers_in_words(layers):
    """The layers that training folds select, (F,), in words; layer 0 are the embeddings."""
    names = [f"layer {layer}" if layer else "the embeddings" for layer in np.unique(layers)]
    return " or ".join(names)


def check_dest(dest):
    """Refuses, before hours of work, a folder where files of another origin would be replaced.

    Files with the names that this program writes must come from an evaluation.
    """
    check_output_folder(dest, FIRST_LINES)
    records = record_files(dest)
    for path in records:
        ModelRecord(path).table()
    for name, expected in FIRST_LINES.items():
        path = os.path.join(dest, name)
        if not records:
            check_absent(path)  # without records, it was written by something else
        elif os.path.lexists(path):
            with open_to_read(path) as stream:
                found = stream.readline(1000).decode("utf-8", "replace").rstrip()
            if found != expected:
                raise UsageError(
                    f"{path}: the first line is {short_repr(found)}, expected {expected!r}, which "
                    "this program writes; move the file away, or choose another --dest"
                )


def main(arguments, command, fetch):
    """Evaluates encoders as a recipe.

    Args:
        arguments: the words of the command line
        command: how the user calls the recipe
        fetch: the path of the program that fetches labelled files
    """
    args = parse_args(arguments, command, __doc__)
    check_dest(args.dest)
    os.makedirs(args.dest, exist_ok=True)
    # Another run waits for this one, and continues with its records.
    with one_at_a_time(args.dest):
        evaluate(args, fetch)
