#!/usr/bin/env python3
"""The small recipe beside a bag of words, and what its parts give; SMALL.md is made from the
records.

    python small.py list
        the names of all encoders that it measures, VARIANT-SEED
    python small.py options small-1 --run RUN
        the options of pretrain_small.sh for one
    python small.py data small-1 --run RUN
        the folder of its data
    python small.py task_texts --run RUN
        the training texts of all tasks, into RUN/text/tasks.txt
    python small.py measure small-1 --run RUN [--pairs blimp]
        measures it, into records/small
    python small.py baselines --run RUN
        what needs no encoder, into records/small/baselines.npz

small_page.py then remakes the tables. A variant differs from the recipe in its options, which
small_variants.py has. Measured are the losses of validation and, but for OBJECTIVES and
OTHER_SETTINGS, scores with few labels, in NAME.csv. Those in FINE_TUNED_VARIANTS are also
fine-tuned, with the recipe's defaults in bfloat16; what each predicts for every dev and test
example, by itself and together with a bag of words, is in NAME.npz, and so is how minimal pairs are
decided.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from few_labels import FewLabels
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.bag_of_words import LabelledExamples, baseline_predictions
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from maelm_fairseq.baselines.ensemble import average_predictions
from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.evaluation.model_record import GROUPS_KEY, PAIRS_FEATURE, ModelRecord
from maelm_fairseq.evaluation.pair_files import read_pairs
from maelm_fairseq.finetuning.labelled_files import find_file
from maelm_fairseq.finetuning.sentence_files import SENTENCE_FILES, read_sentences
from maelm_fairseq.metrics import argmax_or_value
from measure import (
    FEW_SHOT_REPEATS,
    NATURAL_TASKS,
    read_losses,
    to_small_type,
)
from measurements import Measurement, write_record
from ngrams import NGRAM_MODELS, have_known_words, overlapping
from predictors import predict_with_encoder, predict_with_word_vectors, word_vectors
from programs import RECIPES, run_quietly
from small_variants import (
    FINE_TUNED_VARIANTS,
    OBJECTIVES,
    OTHER_SETTINGS,
    SEEDS,
    TAGGERS,
    UNTRAINED,
    data_folder,
    encoder_names,
    options_of_recipe,
    variant_and_seed,
)

SMALL_RECORDS = Path(__file__).with_name("records") / "small"
BASELINES_RECORD = "baselines"
FINE_TUNING_SEED = 1  # of every pretrained encoder
FEW_SHOT_TASKS = ["trec", "rotten_tomatoes"]
FEW_LABELS = 32  # of each class
# Names of recorded arrays.
KNOWN = "known"  # whether all words of a pair are known
WORD_VECTORS = "word vectors"
WITH_BAG_OF_WORDS = "together"
ENCODER_ALONE = "encoder"
TARGETS = "targets"
IS_DEV_KEY = "of dev"
OVERLAPPING = "overlapping"  # whether the pretraining text has 8 neighbouring words of an example


# Measuring


def fine_tune(name, folder, task):
    """Fine-tunes an encoder on a task by the recipe, and returns the path of the checkpoint."""
    variant, seed = variant_and_seed(name)
    command = [RECIPES / "finetune.py", "mae_lm_sentences"]
    source = name
    if variant == UNTRAINED:
        source = "small-1"  # of which only the sizes are taken
        command += ["--seeds", seed, "--only-seed", seed, "--from-scratch"]
    else:
        seed = FINE_TUNING_SEED
        command += ["--seeds", seed]
    dest = folder / name / "tuned"
    command += ["--labelled", folder / "labelled" / task]
    command += ["--checkpoint", folder / source / "checkpoint_best.pt"]
    command += ["--data", data_folder(name, folder), "--save-dir", dest, "--bf16-autocast"]
    run_quietly(sys.executable, *command)
    (checkpoint,) = (dest / task).glob(f"*/seed{seed}/checkpoint_last.pt")
    return checkpoint


def task_predictions(name, folder):
    """What a fine-tuned encoder predicts, alone and together with a bag of words.

    Returns: {TASK/PREDICTOR: (n,)}
    """
    arrays = {}
    for task in NATURAL_TASKS:
        labelled_folder = folder / "labelled" / task
        labelled = LabelledExamples(labelled_folder)
        checkpoint = fine_tune(name, folder, task)
        data = data_folder(name, folder)
        encoder = predict_with_encoder(checkpoint, labelled_folder, data)
        bag_of_words = baseline_predictions(labelled)[BAG_OF_WORDS]
        dev = is_of_dev(labelled)
        arrays[f"{task}/{ENCODER_ALONE}"] = to_small_type(argmax_or_value(encoder), np.float32)
        votes = average_predictions(encoder, bag_of_words, encoder[dev], bag_of_words[dev])
        arrays[f"{task}/{WITH_BAG_OF_WORDS}"] = to_small_type(argmax_or_value(votes), np.float32)
    return arrays


def is_of_dev(labelled):
    """Whether each example is in the dev file, (n,); the others are in the test file."""
    return np.isin(labelled.scored_indices, labelled.indices_by_file["dev.tsv"])


def run_evaluation(name, folder, pairs):
    """Records an encoder's few-shot probes and decisions of minimal pairs; returns the folder."""
    dest = folder / name / "evaluated"
    command = [RECIPES / "evaluate.py", "--checkpoint", folder / name / "checkpoint_best.pt"]
    command += ["--names", name, "--data", data_folder(name, folder), "--dest", dest]
    if pairs:
        command += ["--pairs", pairs, "--bf16-autocast"]
    if has_few_labels(name):
        command += ["--labelled", folder / "labelled", "--tasks", *FEW_SHOT_TASKS]
        command += ["--few-shot-repeats", FEW_SHOT_REPEATS]
    run_quietly(sys.executable, *command)
    return dest


def has_few_labels(name):
    """Whether an encoder is also measured with few labels."""
    variant, _ = variant_and_seed(name)
    return variant not in {**OBJECTIVES, **OTHER_SETTINGS}


def measure_variant(name, folder, pairs):
    """Writes NAME.csv, with the columns of other records, and NAME.npz, predictions and decisions.

    The decisions are saved before fine-tuning, which takes an hour and makes the predictions.
    """
    variant, _ = variant_and_seed(name)
    measurements = []
    arrays = {}
    if variant != UNTRAINED:
        measurements += validation_losses(name, folder)
        if pairs or has_few_labels(name):
            dest = run_evaluation(name, folder, pairs)
            measurements += few_shot_scores(name, dest)
        if pairs:
            arrays[PAIRS_FEATURE] = decisions(ModelRecord(str(dest / f"{name}.npz")), pairs)
            save_arrays(SMALL_RECORDS / f"{name}.npz", arrays)
        if has_few_labels(name):
            measurements += scores_with_few_labels(name, folder)
    if variant in FINE_TUNED_VARIANTS:
        arrays.update(task_predictions(name, folder))
    save_arrays(SMALL_RECORDS / f"{name}.npz", arrays)
    write_record(SMALL_RECORDS / f"{name}.csv", measurements)


def validation_losses(name, folder):
    """Yields what the log of an encoder's pretraining says of validations: `Measurement`s."""
    variant, seed = variant_and_seed(name)
    for measured in read_losses(folder / name / "train.log"):
        yield measured._replace(arm=variant, seed=seed, feature="validation")


def few_shot_scores(name, dest):
    """Yields the scores of `evaluate.py` with few labels: `Measurement`s."""
    variant, seed = variant_and_seed(name)
    for row in pd.read_csv(dest / "scores.csv").itertuples():
        if row.feature.endswith("examples per class"):
            yield Measurement(
                arm=variant if row.model == name else row.model,
                seed=seed,
                task=row.task,
                feature=row.feature,
                metric=row.metric,
                value=row.value,
            )


def scores_with_few_labels(name, folder):
    """Yields the scores of an encoder that is fine-tuned on few examples of each class.

    Those of a bag of words beside it are among these `Measurement`s.
    """
    variant, seed = variant_and_seed(name)
    checkpoint = str(folder / name / "checkpoint_best.pt")
    for task in FEW_SHOT_TASKS:
        few_labels = FewLabels(checkpoint, folder / "data", folder / "labelled" / task)
        for predictor, value in few_labels.scores(FEW_LABELS).items():
            yield Measurement(
                arm=variant,
                seed=seed,
                task=task,
                feature=f"{FEW_LABELS} labels a class, {predictor}",
                metric="accuracy",
                value=round(value, 4),
            )


def decisions(record, pairs):
    """How minimal pairs are decided, in halves: int8 (N,)."""
    return (2 * record.arrays[f"{read_pairs(pairs).name}/{PAIRS_FEATURE}"]).astype(np.int8)


def measure_baselines(folder, pairs):
    """Writes baselines.npz: the targets of all examples, and what needs no encoder.

    That is the predictions of a bag of words and of word vectors, and the decisions of n-grams.
    """
    arrays = {}
    vectors = word_vectors(folder / "data", encoder_width(folder))
    for task in NATURAL_TASKS:
        for name, values in task_baselines(task, folder, vectors).items():
            arrays[f"{task}/{name}"] = to_small_type(values, np.float32)
    if pairs:
        arrays.update(pair_baselines(folder, pairs))
    save_arrays(SMALL_RECORDS / f"{BASELINES_RECORD}.npz", arrays)


def task_baselines(task, folder, vectors):
    """What is known of a task's examples without an encoder: {name: (n,)}."""
    labelled = LabelledExamples(folder / "labelled" / task)
    baselines = baseline_predictions(labelled)
    arrays = {predictor: argmax_or_value(outputs) for predictor, outputs in baselines.items()}
    arrays[WORD_VECTORS] = predict_with_word_vectors(labelled, vectors, folder / "data")
    arrays[TARGETS] = labelled.targets[labelled.scored_indices]
    arrays[IS_DEV_KEY] = is_of_dev(labelled)
    texts = [" ".join(labelled.texts[index]) for index in labelled.scored_indices]
    arrays[OVERLAPPING] = overlapping(texts, str(folder / "text" / "train.txt"))
    return arrays


def pair_baselines(folder, pairs):
    """How n-grams decide minimal pairs, with the groups of pairs and whether their words are known.

    Returns: {name: (N,)}
    """
    arrays = {}
    dest = folder / "ngrams"
    text = folder / "text" / "train.txt"
    command = ["--text", text, "--data", folder / "data", "--pairs", pairs, "--dest", dest]
    run_quietly(sys.executable, Path(__file__).with_name("ngrams.py"), *command)
    for model in NGRAM_MODELS:
        record = ModelRecord(str(dest / f"{model}.npz"))
        arrays[f"{PAIRS_FEATURE}/{model}"] = decisions(record, pairs)
    minimal_pairs = read_pairs(pairs)
    arrays[f"{PAIRS_FEATURE}/{GROUPS_KEY}"] = minimal_pairs.groups
    arrays[f"{PAIRS_FEATURE}/{KNOWN}"] = have_known_words(minimal_pairs, str(text))
    return arrays


def encoder_width(folder):
    """The width of the small recipe's encoder."""
    checkpoint = read_checkpoint(str(folder / "small-1" / "checkpoint_best.pt"))
    return checkpoint["cfg"]["model"]["encoder_embed_dim"]


def write_task_texts(folder):
    """Writes the training texts of all tasks as documents of a line, each once."""
    texts = {}
    for task in NATURAL_TASKS:
        table = read_sentences(find_file(str(folder / "labelled" / task), "train", SENTENCE_FILES))
        texts.update(dict.fromkeys(example.texts[0] for example in table.examples))
    with atomic_write(folder / "text" / "tasks.txt") as stream:
        stream.writelines(f"{text}\n\n" for text in texts)


def save_arrays(path, arrays):
    with atomic_write(path, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def main():
    parser = Parser("small.py", description=__doc__)
    choices = "list options data task_texts measure".split()
    parser.add_argument("what", choices=[*choices, BASELINES_RECORD])
    parser.add_argument("name", nargs="?", metavar="VARIANT-SEED")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models")
    parser.add_argument(
        "--pairs", type=Path, metavar="FILE_or_DIR", help="minimal pairs, such as BLiMP's"
    )
    args = parser.parse_args()
    SMALL_RECORDS.mkdir(parents=True, exist_ok=True)
    if args.what == "list":
        names = [name for name in encoder_names() if variant_and_seed(name)[0] not in TAGGERS]
        return print(*names, *(f"{UNTRAINED}-{seed}" for seed in SEEDS), sep="\n")
    if args.what == BASELINES_RECORD:
        return measure_baselines(args.run, args.pairs)
    if args.what == "task_texts":
        return write_task_texts(args.run)
    if args.name is None:
        raise UsageError(f"{args.what}: expected a VARIANT-SEED, such as small-1")
    if args.what == "options":
        return print(options_of_recipe(args.name, args.run))
    if args.what == "data":
        return print(data_folder(args.name, args.run))
    return measure_variant(args.name, args.run, args.pairs)


if __name__ == "__main__":
    run_main(main)
