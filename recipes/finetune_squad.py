#!/usr/bin/env python3
"""Fine-tunes a pretrained encoder on SQuAD 1.1 or 2.0, or on your own data in the same format, and evaluates it.

For each seed it runs fairseq-train and computes exact match and F1 on the dev set. It reports the median over the
seeds, and writes the best seed's answers in the format of the official evaluation (SAVE_DIR/submission).
"""

import os

import torch

import finetune
from child_processes import terminate_children_on_sigterm
from maelm_fairseq.base.errors import run
from maelm_fairseq.base.files import save_json
from maelm_fairseq.checkpoints.building import load_model
from maelm_fairseq.data.blocks import LineSizes
from maelm_fairseq.finetuning.squad import metric
from maelm_fairseq.finetuning.squad import squad_task as squad
from maelm_fairseq.finetuning.squad.answers import answer_questions
from maelm_fairseq.finetuning.squad.questions import read_questions
from maelm_fairseq.finetuning.squad.text import SpanTokenizer
from maelm_fairseq.vocabulary import read_vocabulary

METRICS = ["f1", "exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "NoAns_exact"]


def answer(model_file, data, questions):
    """Answers questions with a fine-tuned model, and evaluates the answers.

    Returns:
        {id: text}, for SQuAD 2.0 empty where no answer scores higher than the best one; {name of a metric: percent},
        for SQuAD 2.0 also of answerable and unanswerable questions apart, and at the best threshold
    """
    record, (dictionary, processor) = squad.load_record(data), read_vocabulary(data)
    model = load_model(model_file, dictionary).to("cuda" if torch.cuda.is_available() else "cpu")
    predictions = answer_questions(model, questions, SpanTokenizer(processor), record.options)
    texts = {question.id: answer.text for question, answer in zip(questions, predictions)}
    differences = {question.id: answer.difference for question, answer in zip(questions, predictions)}
    may_be_empty = record.version != "1.1"

    def answered(threshold):
        return {name: "" if may_be_empty and differences[name] > threshold else text for name, text in texts.items()}

    predictions = answered(0)
    evaluated = metric.evaluate(predictions, questions)
    scores = {name: evaluated[name] for name in METRICS if name in evaluated}
    if may_be_empty:
        best = metric.evaluate(answered(metric.best_threshold(texts, differences, questions)), questions)
        scores.update({f"{name}_at_best_threshold": best[name] for name in METRICS[:2]})
    return predictions, scores


def main():
    terminate_children_on_sigterm()
    args, extra = finetune.parser(__doc__).parse_known_args()
    record, questions = squad.load_record(args.data), read_questions(os.path.join(args.data, "dev.json"))
    task = "squad_" + record.version
    recipe = finetune.Recipe(
        args,
        extra,
        task,
        data=args.data,
        record=os.path.join(args.data, squad.RECORD),
        examples=len(LineSizes(os.path.join(args.data, "train"))),
        max_tokens=record.options.max_tokens,
        options=["--task", "squad", "--criterion", "squad"],
        evaluate=lambda model_file: answer(model_file, args.data, questions)[1],
        epochs=[2, 3],
    )
    best = recipe.main()
    if best:
        path = os.path.join(args.save_dir, "submission", task + ".json")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save_json(answer(best, args.data, questions)[0], path)
        print(f"answers to the dev set: {path}")


if __name__ == "__main__":
    run(main)
