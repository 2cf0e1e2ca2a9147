#!/usr/bin/env python3
"""Answers SQuAD questions with a fine-tuned model, and evaluates the answers.

Predictions and no-answer scores are written in the format of the official evaluation. For data with unanswerable
questions (SQuAD 2.0), the prediction is empty if the no-answer score exceeds that of the best answer by more than the
threshold.
"""

import argparse
import os
from collections import namedtuple

import torch

from maelm_fairseq.data.vocabulary import load_dictionary, load_sentencepiece
from maelm_fairseq.engine.checkpoints import find_checkpoint, load_model
from maelm_fairseq.engine.errors import Parser, UsageError, run
from maelm_fairseq.engine.files import save_json
from maelm_fairseq.finetuning.squad.answers import answer_questions
from maelm_fairseq.finetuning.squad.metric import best_threshold, evaluate
from maelm_fairseq.finetuning.squad.questions import read_questions
from maelm_fairseq.finetuning.squad.task import HEAD, load_record
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, WindowSizes

Results = namedtuple("Results", "predictions differences metrics")


def answer(checkpoint, data, questions_file=None, threshold=0.0):
    """Answers the questions of a file.

    Args:
        checkpoint: a `.pt` file of a fine-tuned model, or the folder of its `checkpoint_best.pt`
        data: folder that data-prep/squad.py wrote
        questions_file: SQuAD's JSON; None for the `dev.json` in `data`
        threshold: for SQuAD 2.0, on the no-answer score minus the score of the best answer
    Returns:
        Results: `predictions` {id: text}; `differences` {id: no-answer score minus the score of the best answer};
        `metrics` {name: number}, for SQuAD 2.0 also `at_best_threshold`
    Raises:
        FileNotFoundError: a file is missing
        ValueError: a file has the wrong contents
    """
    record = load_record(data)
    dictionary = load_dictionary(data)
    model = load_model(find_checkpoint(checkpoint), dictionary)
    if HEAD not in model.classification_heads:
        raise UsageError(f"{checkpoint}: no head for answers; expected a model fine-tuned with --task {HEAD}")
    questions = read_questions(questions_file or os.path.join(data, "dev.json"))
    tokenizer = SpanTokenizer(load_sentencepiece(os.path.join(data, "sentencepiece.model"), dictionary))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    found = answer_questions(model, questions, tokenizer, WindowSizes(**record["options"]))
    texts = {question.id: prediction.text for question, prediction in zip(questions, found)}
    differences = {question.id: prediction.difference for question, prediction in zip(questions, found)}
    if record["version"] == "1.1":
        return Results(texts, differences, evaluate(texts, questions))

    def answered(threshold):
        return {name: "" if differences[name] > threshold else text for name, text in texts.items()}

    predictions = answered(threshold)
    best = best_threshold(texts, differences, questions)
    metrics = dict(evaluate(predictions, questions), threshold=threshold)
    metrics["at_best_threshold"] = dict(evaluate(answered(best), questions), threshold=best)
    return Results(predictions, differences, metrics)


def describe(metrics):
    """The metrics as lines of text."""
    names = {"": "all", "HasAns_": "answerable", "NoAns_": "unanswerable"}
    lines = []
    if "threshold" in metrics:
        lines.append(f"empty prediction above a difference of {metrics['threshold']:g}")
    for prefix, name in names.items():
        if prefix + "total" in metrics:
            exact, f1, total = (metrics[prefix + key] for key in ("exact", "f1", "total"))
            lines.append(f"{name}: exact match {exact:.2f}, F1 {f1:.2f} ({total:,} questions)")
    if "at_best_threshold" in metrics:
        first, *others = describe(metrics["at_best_threshold"])
        lines += ["with the best threshold for this file: " + first, *others]
    return lines


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="the fine-tuned model")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder that data-prep/squad.py wrote")
    parser.add_argument("--json", metavar="FILE", help="questions in SQuAD's format; default: dev.json of --data")
    parser.add_argument("--predictions", required=True, metavar="OUT.json", help="{id: answer}")
    parser.add_argument(
        "--no-answer-scores", metavar="OUT.json", help="{id: no-answer score minus the score of the best answer}"
    )
    parser.add_argument("--metrics", metavar="OUT.json", help="exact match and F1")
    parser.add_argument(
        "--no-answer-threshold", type=float, default=0.0, metavar="X", help="for SQuAD 2.0 (default: %(default)s)"
    )
    args = parser.parse_args()
    paths = [args.predictions, args.no_answer_scores, args.metrics]
    for path in filter(None, paths):
        if os.path.exists(path):
            raise UsageError(f"{path} already exists: choose another file, or remove it")
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise UsageError(f"{path}: folder {os.path.dirname(path)} does not exist; create it first")
    results = answer(args.checkpoint, args.data, args.json, args.no_answer_threshold)
    for content, path in zip(results, paths):
        if path:
            save_json(content, path)
    print("\n".join(describe(results.metrics)))


if __name__ == "__main__":
    run(main)
