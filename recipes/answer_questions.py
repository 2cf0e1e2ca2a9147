#!/usr/bin/env python3
"""Answers SQuAD's questions with a fine-tuned model, and says how good the answers are.

Predictions, n-best lists and scores of no answer are written as the official evaluation takes them. Where the data
have questions without answer (SQuAD 2.0), a question is answered with nothing when that scores higher than the best
answer by more than the threshold.
"""

import argparse
import logging
import os
import sys
import time
import warnings
from collections import namedtuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
logging.disable(logging.INFO)
warnings.simplefilter("ignore")

import torch  # noqa: E402

from maelm_fairseq.checkpoint import find_checkpoint, load_model  # noqa: E402
from maelm_fairseq.errors import UsageError  # noqa: E402
from maelm_fairseq.files import save_json  # noqa: E402
from maelm_fairseq.squad.answers import answer_questions  # noqa: E402
from maelm_fairseq.squad.metric import best_threshold, evaluate  # noqa: E402
from maelm_fairseq.squad.task import HEAD, load_record  # noqa: E402
from maelm_fairseq.squad.text import SpanTokenizer, WindowSizes, read_questions  # noqa: E402
from maelm_fairseq.vocabulary import load_dictionary, load_sentencepiece  # noqa: E402

Results = namedtuple("Results", "predictions nbest differences metrics")


def answer(checkpoint, data, questions_file=None, threshold=0.0, batch_size=32, progress=None):
    """Answers the questions of a file.

    Args:
        checkpoint: a `.pt` file of a fine-tuned model, or the folder of its `checkpoint_best.pt`
        data: folder that data-prep/squad.py wrote
        questions_file: SQuAD's JSON; None for the `dev.json` in `data`
        threshold: of the score of no answer minus that of the best one, for SQuAD 2.0
        batch_size: windows of a batch
        progress: called with the number of windows done and of all
    Returns:
        Results: `predictions` {id: text}; `nbest` {id: list of {text, score}}, likeliest first; `differences` {id: score
        of no answer minus that of the best}; `metrics` {name: number}, for SQuAD 2.0 also `at_best_threshold`
    Raises:
        FileNotFoundError, ValueError: a file is missing, or is not what it should be
    """
    record = load_record(data)
    dictionary = load_dictionary(data)
    model = load_model(find_checkpoint(checkpoint), dictionary)
    if HEAD not in model.classification_heads:
        raise UsageError(f"{checkpoint}: no head for answers in it; expected a model fine-tuned with --task {HEAD}")
    questions = read_questions(questions_file or os.path.join(data, "dev.json"))
    tokenizer = SpanTokenizer(load_sentencepiece(os.path.join(data, "sentencepiece.model"), dictionary))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    found = answer_questions(model, questions, tokenizer, WindowSizes(**record["options"]), batch_size, progress)

    texts = {q.id: answers.candidates[0].text for q, answers in zip(questions, found)}
    nbest = {q.id: [c._asdict() for c in answers.candidates] for q, answers in zip(questions, found)}
    differences = {q.id: answers.difference for q, answers in zip(questions, found)}
    if record["version"] == "1.1":
        return Results(texts, nbest, differences, evaluate(texts, questions))

    for question, answers in zip(questions, found):
        nbest[question.id].append({"text": "", "score": answers.no_answer})
        nbest[question.id].sort(key=lambda candidate: -candidate["score"])

    def answered(threshold):
        return {name: "" if differences[name] > threshold else text for name, text in texts.items()}

    predictions = answered(threshold)
    best = best_threshold(texts, differences, questions)
    metrics = dict(evaluate(predictions, questions), threshold=threshold)
    metrics["at_best_threshold"] = dict(evaluate(answered(best), questions), threshold=best)
    return Results(predictions, nbest, differences, metrics)


def describe(metrics):
    """Lines that tell the metrics."""
    names = {"": "all", "HasAns_": "answerable", "NoAns_": "unanswerable"}
    lines = []
    if "threshold" in metrics:
        lines.append("no answer above a difference of {:g}".format(metrics["threshold"]))
    for prefix, name in names.items():
        if prefix + "total" in metrics:
            values = [metrics[prefix + key] for key in ("exact", "f1", "total")]
            lines.append("{}: exact match {:.2f}, F1 {:.2f} ({:,} questions)".format(name, *values))
    if "at_best_threshold" in metrics:
        lines += ["with the best threshold for this very file, " + describe(metrics["at_best_threshold"])[0]]
        lines += describe(metrics["at_best_threshold"])[1:]
    return lines


class Progress:
    """Says every ten seconds how far it is."""

    def __init__(self):
        self.start = self.last = time.time()

    def __call__(self, done, total):
        now = time.time()
        if now - self.last > 10:
            self.last = now
            rate = done / (now - self.start)
            print("{:,} of {:,} windows, {:.1f}/s".format(done, total, rate), file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="the fine-tuned model")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder that data-prep/squad.py wrote")
    parser.add_argument("--json", metavar="FILE", help="questions in SQuAD's format; default: dev.json of --data")
    parser.add_argument("--predictions", required=True, metavar="OUT.json", help="{id: answer}")
    parser.add_argument("--nbest", metavar="OUT.json", help="{id: the likeliest answers with their scores}")
    parser.add_argument("--no-answer-scores", metavar="OUT.json", help="{id: score of no answer minus the best's}")
    parser.add_argument("--metrics", metavar="OUT.json", help="exact match and F1")
    parser.add_argument(
        "--no-answer-threshold", type=float, default=0.0, metavar="X", help="for SQuAD 2.0 (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="windows of a batch (default: %(default)s)"
    )
    args = parser.parse_args()
    if args.batch_size < 1:
        raise UsageError(f"--batch-size {args.batch_size} must be at least 1")
    paths = [args.predictions, args.nbest, args.no_answer_scores, args.metrics]
    for path in filter(None, paths):
        if os.path.exists(path):
            raise UsageError(f"{path} is there already: name another file, or remove it")
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise UsageError(f"{path}: there is no folder {os.path.dirname(path)}; make it first")
    progress = Progress()
    results = answer(args.checkpoint, args.data, args.json, args.no_answer_threshold, args.batch_size, progress)
    for content, path in zip(results, paths):
        if path:
            save_json(content, path)
    print("\n".join(describe(results.metrics)))


if __name__ == "__main__":
    main()
