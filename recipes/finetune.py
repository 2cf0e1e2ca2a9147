"""Fine-tunes a pretrained encoder on labelled files with several seeds, and reports the median of
their scores.

Each seed is a run of fairseq-train in a folder of its own, SAVE_DIR/NAME/SETTINGS-CHECKSUM/seed1,
whose checkpoint_last.pt is the result. The same command resumes. The seed with the best score on
the dev file then predicts the test files, and is scored on those that have labels. Beside the
encoder's scores, the recipe prints the scores of a baseline without an encoder: a bag of words for
sentences, a conditional random field (CRF) for words with tags; questions have none.
Writes SAVE_DIR/results.tsv and, beside the seeds, the predictions for test files (for GLUE and
SQuAD in the form that their servers take) and a report with precision, recall and F1 of each class.
"""

import logging
import os
import shlex
import sys
from pathlib import Path

import maelm_fairseq.plugin  # noqa: F401  registers the tasks, also their models
from maelm_fairseq.base.command_line import script_and_options
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS, CRF
from maelm_fairseq.baselines.ensemble import ENSEMBLES
from maelm_fairseq.finetuning.labelled_files import is_test_split
from maelm_fairseq.finetuning.prediction import predict_split
from maelm_fairseq.finetuning.task_loading import load_task, task_class_of
from maelm_fairseq.runs.finetune_baselines import BagOfWordsRun, CrfRun
from maelm_fairseq.runs.finetune_files import write_file
from maelm_fairseq.runs.finetune_options import (
    FineTuningCommand,
    Run,
    hyperparameters_to_try,
    parse_args,
)
from maelm_fairseq.runs.finetune_results import (
    ENCODER,
    LABELLING_PREDICTORS,
    RESULTS_FILE,
    Result,
    compare_predictors,
    print_results,
    read_table,
    write_table,
)
from maelm_fairseq.runs.finetune_runs import FILE_LOGGER, FineTuningRuns
from maelm_fairseq.runs.jobs import Jobs
from maelm_fairseq.runs.learning_curve import LearningCurve
from maelm_fairseq.runs.split_scores import SplitScores
from maelm_fairseq.runs.training_length import describe_training_length

MIN_BASELINE_SECONDS = 60  # that the baseline may always take
# The baseline to compare with, by fairseq's name of the task.
BASELINE_RUNS = {"mae_lm_sentences": BagOfWordsRun, "mae_lm_tokens": CrfRun}
# The script that starts this program for a task, by fairseq's name of the task.
SCRIPTS = {
    "mae_lm_sentences": "finetune_sentences.sh",
    "mae_lm_tokens": "finetune_tagging.sh",
    "squad": "finetune_squad.sh",
}


def prepare_runs(task_name, argv):
    """Checks options and files; returns the `FineTuningRuns`, and the hyperparameters to try.

    Args:
        task_name: fairseq's name of the task
        argv: the arguments of the recipe
    """
    task_class = task_class_of(task_name)
    args, fairseq_args = parse_args(task_class, argv, SCRIPTS[task_name], __doc__)
    command = FineTuningCommand(task_name, task_class, args, fairseq_args)
    if command.name == RESULTS_FILE:
        advice = "rename it, as the table of results has that name"
        raise UsageError(
            f"--labelled {args.labelled}: found a folder called {RESULTS_FILE}; {advice}"
        )
    read_table(args.save_dir)
    candidates = hyperparameters_to_try(args, command.defaults)
    cfg = command.configuration(candidates[0])
    return FineTuningRuns(command, cfg, Jobs(args.jobs)), candidates


def finetune(runs, candidates):
    """Makes all runs; prints and records the results, and writes what the best seed predicts."""
    args = runs.command.args
    chosen = runs.search(candidates)
    if args.only_seed:
        runs.run_seeds(chosen, [args.only_seed])
        return
    seeds = range(1, args.seeds + 1)
    records = runs.run_seeds(chosen, seeds)
    best = seeds[runs.rank_by_dev_score(records)[0]]
    task, model = load_model(runs, Run(chosen, best))
    results, scores = report_best(runs, task, model, chosen, best, records)
    scores_of_splits = {split: {ENCODER: of_split} for split, of_split in scores.items()}
    baseline_run = None
    if runs.command.task_name in BASELINE_RUNS:
        baseline_run = make_baseline_run(runs, task)
        limit = max(MIN_BASELINE_SECONDS, sum(record.seconds for record in records))
        seed_runs = [Run(chosen, seed) for seed in seeds]
        outcome = baseline_run.run(runs.jobs, limit)
        if outcome is not None:
            results, scores_of_splits = with_baselines(
                runs, baseline_run, outcome, results, scores, seed_runs, best
            )
    write_reports(runs, task, chosen, best, scores_of_splits)
    print_results(results, task.secondary_metrics)
    checkpoint = runs.checkpoint_path(Run(chosen, best))
    if baseline_run is not None:
        report_verdict(runs, results, checkpoint, baseline_run.options())
    label = task.constant_prediction(task.datasets["valid"], scores["valid"].predictions)
    if label is not None:
        print(
            f"the encoder predicts {label!r} everywhere in {runs.file_name('valid')}: it has not "
            "learned to tell labels apart"
        )
    report_training_length(runs, chosen, records, results[0])
    write_table(args.save_dir, results)
    print(f"model of the encoder's best seed: {checkpoint}")


def report_training_length(runs, hyperparameters, records, result):
    """Says whether training was long enough; `result` is the encoder's on the dev file."""
    args = runs.command.args
    default_epochs = runs.command.defaults.hyperparameters.epochs
    if args.search and args.epochs is None:
        default_epochs = hyperparameters.epochs  # which scored highest
    lines = describe_training_length(
        LearningCurve([record.curve for record in records], result.standard_error),
        result,
        hyperparameters.epochs,
        default_epochs,
        runs.num_updates(hyperparameters),
    )
    for line in lines:
        print(line)


def report_verdict(runs, results, checkpoint, baseline_options):
    """Says which predictor scored highest on the dev file, and how to label new texts.

    Args:
        results: list of `Result`
        checkpoint: path of the encoder's reported model
        baseline_options: as for `labelling_command`
    """
    dev = runs.file_name("valid")
    verdict = compare_predictors([result for result in results if result.file_name == dev])
    if len({result.predictor for result in results}) > 1:
        print(verdict.line)
    for predictor in verdict.worth_using:
        note = "" if predictor == verdict.worth_using[-1] else ", which costs less"
        command = labelling_command(runs, predictor, checkpoint, baseline_options)
        print(f"to label new texts with the {predictor}{note}: {command}")


def labelling_command(runs, predictor, checkpoint, baseline_options):
    """The command by which a predictor labels new texts, for the user.

    Args:
        predictor: its name
        checkpoint: path of the encoder's reported model
        baseline_options: that say what the baseline is trained on, beside the files
    """
    encoder = ["--checkpoint", checkpoint, "--data", os.path.abspath(runs.command.args.data)]
    # The user's shell may have another Python than this environment's.
    program = [sys.executable, Path(__file__).with_name("label_texts.py").resolve()]
    program += ["--labelled", runs.command.labelled_folder, *baseline_options]
    if predictor == ENCODER:
        program = [sys.executable, "-m", "maelm_fairseq.predict", *encoder]
    elif predictor in ENSEMBLES:
        program += encoder
    return f"{shlex.join(map(str, program))} --texts FILE --dest NEW_FILE"


def report_best(runs, task, model, hyperparameters, best, records):
    """Predicts every split with the model of the best seed, and writes its predictions.

    Args:
        task, model: of the best seed
        best: the seed
        records: the `finetune_runs.RunRecord` of each seed
    Returns: a `Result` for each metric of the splits with labels; {split: its `SplitScores`}
    """
    # Which files are read was logged before training, and is not logged again.
    logging.getLogger(FILE_LOGGER).setLevel(logging.WARNING)
    command = runs.command
    folder = runs.seeds_folder(hyperparameters)
    results = []
    scores = {}
    for split in runs.splits:
        if split == "train":
            continue
        name = runs.file_name(split)
        predictions = predict_split(task, model, split)
        dataset = task.datasets[split]
        if is_test_split(split) or (split == "valid" and task.predicts_dev):
            file_name, text = task.prediction_file(dataset, predictions, command.name)
            write_file(os.path.join(folder, file_name), text, f"predictions for {name}")
        if not dataset.metrics:
            continue
        scores[split] = SplitScores(task, split, predictions)
        results += results_of_split(runs, hyperparameters, split, best, records, scores[split])
    return results, scores


def write_reports(runs, task, hyperparameters, best, scores_of_splits):
    """Writes precision, recall and F1 of each class, of each predictor on each split.

    Args:
        task: of the best seed
        best: the reported seed of the encoder
        scores_of_splits: {split: {predictor: `SplitScores`}}
    """
    reports = []
    for split, scores_of_predictors in scores_of_splits.items():
        for predictor, scores in scores_of_predictors.items():
            if predictor not in LABELLING_PREDICTORS:
                continue
            report = task.report(task.datasets[split], scores.predictions)
            if report:
                seed = "" if predictor in (BAG_OF_WORDS, CRF) else f", seed {best}"
                reports.append(f"{runs.file_name(split)}, {predictor}{seed}\n{report}")
    if reports:
        name = f"{runs.command.name}.report.txt"
        path = os.path.join(runs.seeds_folder(hyperparameters), name)
        write_file(path, "\n".join(reports), "precision, recall and F1 of each class")


def results_of_split(runs, hyperparameters, split, best, records, best_scores):
    """A `Result` for each metric of a split.

    It has the scores of all seeds, from their `records`; on a test file, only the best seed's,
    `best_scores`.
    """
    command = runs.command
    note = ", from scratch" if command.args.from_scratch else ""
    if split in runs.validation_splits():
        scores = [record.scores[split] for record in records]
    else:
        scores = [best_scores.values]
        note += f", seed {best}"
    file_name = runs.file_name(split)
    file_sha256 = runs.file_sha256(split)  # once, as the file may be large
    start = "scratch" if command.args.from_scratch else command.checkpoint_file
    options = " ".join(
        [os.path.basename(runs.seeds_folder(hyperparameters)), *command.fairseq_args]
    )
    results = []
    for metric, standard_error in best_scores.standard_errors.items():
        values = [seed_scores[metric] for seed_scores in scores]
        result = Result(
            task=command.name,
            file_name=file_name,
            file_sha256=file_sha256,
            metric=metric,
            values=values,
            standard_error=standard_error,
            start=start,
            settings=options,
            note=note,
        )
        results.append(result)
    return results


def with_baselines(runs, baseline_run, outcome, results, scores, seed_runs, best):
    """Puts the results of the baseline beside the encoder's; returns what `compare` does.

    Args:
        baseline_run: of `make_baseline_run`
        outcome: of its `run`
        results, scores: of the encoder; see `BaselineRun.compare`
        seed_runs: of all seeds of the encoder
        best: the reported seed
    """
    dev_predictions = []
    for run in seed_runs:
        if run.seed == best:
            splits = runs.validation_splits()
            dev_predictions.append({split: scores[split].predictions for split in splits})
        else:
            dev_predictions.append(predict_dev(runs, run))
    return baseline_run.compare(outcome, results, scores, dev_predictions)


def make_baseline_run(runs, task):
    """The `BaselineRun` beside the runs, scored by the task of the reported model."""
    files = {split: runs.path(split) for split in runs.splits}
    folder = os.path.join(runs.command.args.save_dir, runs.command.name)
    run_class = BASELINE_RUNS[runs.command.task_name]
    return run_class(task, runs.command.labelled_folder, files, folder)


def predict_dev(runs, run):
    """What the model of a run predicts for the dev files: {split: predictions}."""
    task, model = load_model(runs, run)
    return {split: predict_split(task, model, split) for split in runs.validation_splits()}


def load_model(runs, run):
    """The task and the model of a run."""
    command = runs.command
    checkpoint = runs.checkpoint_path(run)
    try:
        return load_task(checkpoint, labelled=command.labelled_folder, data=command.args.data)
    except UsageError as error:
        raise UsageError(
            f"{error}; to train this seed again, remove {runs.folder(run)}, and run the same "
            "command"
        ) from None


def main():
    import sklearn  # noqa: F401  fails now if it is missing: reports need it after training

    logging.disable(logging.NOTSET)  # run_main hides what this recipe says of the labelled files
    logging.getLogger(FILE_LOGGER).setLevel(logging.INFO)
    logging.getLogger(FILE_LOGGER).addHandler(logging.StreamHandler(sys.stdout))
    task_name, argv = script_and_options(SCRIPTS)
    runs, candidates = prepare_runs(task_name, argv)
    runs.jobs.stop_on_signals()
    finetune(runs, candidates)


if __name__ == "__main__":
    run_main(main)
