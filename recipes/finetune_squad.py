#!/usr/bin/env python3
"""Fine-tunes a pretrained encoder on SQuAD 1.1 or 2.0, or on your own data in the same format, and evaluates it.

For each seed it runs fairseq-train and computes exact match and F1 on the dev set. It reports the median over the
seeds, and writes the best seed's answers in the format of the official evaluation (SAVE_DIR/submission).
"""

import os

import finetune
from answer_questions import answer
from child_processes import terminate_children_on_sigterm
from maelm_fairseq.engine.errors import run
from maelm_fairseq.engine.files import save_json
from maelm_fairseq.finetuning.squad import task as squad


def evaluate(model_file, data):
    """Exact match and F1 on the dev set, in percent.

    For SQuAD 2.0 also of answerable and unanswerable questions apart, and at the best threshold.
    """
    found = answer(model_file, data).metrics
    names = ["f1", "exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "NoAns_exact"]
    scores = {name: found[name] for name in names if name in found}
    best = found.get("at_best_threshold", {})
    scores.update({f"{name}_at_best_threshold": best[name] for name in names[:2] if name in best})
    return scores


def main():
    terminate_children_on_sigterm()
    args, extra = finetune.parser(__doc__).parse_known_args()
    record = squad.load_record(args.data)
    task = "squad_" + record["version"]
    recipe = finetune.Recipe(
        args,
        extra,
        task,
        data=args.data,
        record=os.path.join(args.data, squad.RECORD),
        examples=record["counts"]["train"]["windows"],
        max_tokens=record["options"]["max_tokens"],
        options=["--task", "squad", "--criterion", "squad"],
        evaluate=lambda model_file: evaluate(model_file, args.data),
        epochs=[2, 3],
    )
    best = recipe.main()
    if best:
        path = os.path.join(args.save_dir, "submission", task + ".json")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save_json(answer(best, args.data).predictions, path)
        print(f"answers to the dev set: {path}")


if __name__ == "__main__":
    run(main)
