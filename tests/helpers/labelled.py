"""Small labelled files that a tiny model can learn, and runs of fairseq-train that fine-tune it."""

import json
import random

from conftest import PLUGIN, TINY, binarize, documents, succeed
from maelm_fairseq.base_task import make_task

LINES = [line for document in documents(50, 1) for line in document]
WORDS = sorted({word for line in LINES for word in line.split()})


def texts(count, seed, longest=12):
    """Lists of random words, of one word to `longest` words each."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(count):
        length = rng.randint(1, longest)
        drawn.append([rng.choice(WORDS) for _ in range(length)])
    return drawn


def write_table(path, header, rows):
    lines = ["\t".join(row) + "\n" for row in [header, *rows]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def sentences(folder):
    """Three classes, by the first letter of a text."""
    kinds = {"k": "first", "r": "second"}
    for split, count in [("train", 80), ("dev", 24), ("test", 10)]:
        rows = [(" ".join(words), kinds.get(words[0][0], "other")) for words in texts(count, split)]
        write_table(folder / f"{split}.tsv", ["sentence", "label"], rows)
    return folder


def pairs(folder, score=False):
    """Writes pairs of texts in MNLI's files, or with `score` in STS-B's.

    MNLI's label says whether both texts begin with the same letter, STS-B's score how many words
    they have.
    """
    splits = ["train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"]
    if score:
        splits = ["train", "dev", "test"]
    label_of_pair = score_of_lengths if score else label_of_first_letters
    for split in splits:
        header = ["index", "sentence1", "sentence2"]
        is_labelled = "test" not in split
        if is_labelled:
            header.append("score" if score else "gold_label")
        rows = []
        for i, (first, second) in enumerate(zip(texts(50, split, 6), texts(50, split + "2", 6))):
            row = [str(i), " ".join(first), " ".join(second)]
            if is_labelled:
                row.append(label_of_pair(first, second))
            rows.append(row)
        write_table(folder / f"{split}.tsv", header, rows)
    return folder


def score_of_lengths(first, second):
    return f"{(len(first) + len(second)) / 2.4:.2f}"


def label_of_first_letters(first, second):
    return "entailment" if first[0][0] == second[0][0] else "neutral"


def tags(folder):
    """A word that begins with k is an entity, together with the words with l that follow it."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in [("train", 60), ("dev", 20), ("test", 6)]:
        lines = []
        for words in texts(count, split, 30):
            tag = "O"
            for word in words:
                if word[0] == "k":
                    tag = "B-X"
                elif word[0] == "l" and tag != "O":
                    tag = "I-X"
                else:
                    tag = "O"
                lines.append(f"{word} {tag}")
            lines.append("")
        (folder / f"{split}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def question(name, text, *answers, **fields):
    """A question in SQuAD's form; `answers`: pairs of a text and the place where it starts."""
    listed = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"id": name, "question": text, "answers": listed, **fields}


def write_squad(path, paragraphs):
    """Writes the official format; `paragraphs`: pairs of a context and its questions."""
    records = [{"context": context, "qas": qas} for context, qas in paragraphs]
    article = {"title": "t", "paragraphs": records}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "2.0", "data": [article]}), encoding="utf-8")


def squad(folder, train=60):
    """The word after "key" is the answer; every third text has no key."""
    for split, count in [("train", train), ("dev", 21)]:
        rng = random.Random(split)
        paragraphs = []
        for number in range(count):
            name = f"{split}-{number}"
            words = [rng.choice(WORDS) for _ in range(rng.randint(8, 30))]
            if number % 3 == 0:
                qa = question(name, "what ?", is_impossible=True)
            else:
                place = rng.randrange(len(words))
                answer = words[place].capitalize()
                words[place : place + 1] = ["key", answer]
                before = " ".join(words[: place + 1]) + " "
                qa = question(name, "what ?", (answer, len(before)))
            paragraphs.append((" ".join(words), [qa]))
        write_squad(folder / f"{split}.json", paragraphs)
    return folder


def blimp(folder):
    """Three paradigms of two linguistic terms, in BLiMP's form.

    The good sentences are texts, the bad ones have the same words in another order.
    """
    folder.mkdir(parents=True)
    for term, paradigm in [("islands", "first"), ("islands", "second"), ("agreement", "third")]:
        lines = []
        for words in texts(5, paradigm):
            pair = {"sentence_good": " ".join(words), "sentence_bad": " ".join(sorted(words))}
            lines.append(json.dumps({**pair, "linguistics_term": term, "UID": paradigm}) + "\n")
        (folder / f"{paradigm}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


KINDS = {"mae_lm_sentences": sentences, "mae_lm_tokens": tags, "squad": squad}


def arguments(task, data, labelled, checkpoint, *further):
    """The arguments of fairseq-train for a fine-tuning of 12 updates without dropout."""
    options = ["--task", task, "--criterion", task]
    options += ["--labelled", labelled, "--finetune-from-model", checkpoint]
    options += ["--arch", "mae_lm", "--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0]
    options += ["--batch-size", 8, "--required-batch-size-multiple", 1]
    options += ["--optimizer", "torch_adamw", "--lr", 0.003]
    options += ["--lr-scheduler", "polynomial_decay", "--total-num-update", 400]
    options += ["--max-update", 12, "--seed", 1, "--num-workers", 0, "--cpu"]
    options += ["--log-format", "json", "--log-interval", 1, "--no-epoch-checkpoints"]
    return [data, "--user-dir", PLUGIN, *options, *further]


def finetune(task, data, labelled, checkpoint, save_dir, *further):
    """Runs fairseq-train with these arguments; returns what was printed."""
    options = arguments(task, data, labelled, checkpoint, "--save-dir", save_dir, *further)
    return succeed("fairseq-train", *options)


def of_fairseq(folder, lines, labels, dictionary):
    """Binarizes data for fairseq's own sentence_prediction; returns the arguments of a run.

    The data are those that RoBERTa's script for GLUE makes.
    """
    classes = sorted({*labels})
    for name, column, symbols in [("input0", lines, dictionary), ("label", labels, classes)]:
        text = "\n".join(column) + "\n"
        binarize(folder / name, {"train": text, "valid": text}, symbols)
    at = TINY.index("--tokens-per-sample")  # an option that the task lacks
    options = [*TINY[:at], *TINY[at + 2 :]]
    options += ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
    options += ["--num-classes", len(classes), "--init-token", 0, "--separator-token", 2]
    return [folder, *options]


def task_with_split(task_class, data, folder, split, max_tokens):
    """A task that has read its training file and a split, for an encoder of so many positions."""
    task = make_task(task_class, data=str(data), labelled=str(folder))
    task.max_tokens = max_tokens
    task.prepare_state()
    task.load_dataset(split)
    return task
