"""Small labelled files that a tiny model can learn, and its fine-tuning with fairseq-train."""

import json
import random

from conftest import PLUGIN, TINY, binarize, documents, succeed

WORDS = sorted({word for document in documents(50, 1) for line in document for word in line.split()})


def texts(count, seed, longest=12):
    rng = random.Random(seed)
    return [[rng.choice(WORDS) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def write_table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def sentences(folder):
    """Three classes, by the first letter of a text."""
    kinds = {"k": "first", "r": "second"}
    for split, count in [("train", 80), ("dev", 24), ("test", 10)]:
        rows = [(" ".join(words), kinds.get(words[0][0], "other")) for words in texts(count, split)]
        write_table(folder / f"{split}.tsv", ["sentence", "label"], rows)
    return folder


def pairs(folder, score=False):
    """MNLI's files: whether two texts begin with one letter; or with `score` STS-B's: how many words they have."""
    splits = ["train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"]
    for split in ["train", "dev", "test"] if score else splits:
        rows = []
        for i, (a, b) in enumerate(zip(texts(50, split, 6), texts(50, split + "2", 6))):
            label = f"{(len(a) + len(b)) / 2.4:.2f}" if score else "entailment" if a[0][0] == b[0][0] else "neutral"
            rows.append((str(i), " ".join(a), " ".join(b), *[label] * ("test" not in split)))
        header = ["index", "sentence1", "sentence2", *["score" if score else "gold_label"] * ("test" not in split)]
        write_table(folder / f"{split}.tsv", header, rows)
    return folder


def tags(folder):
    """Every word that begins with k, and those with l that follow one, are an entity."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in [("train", 60), ("dev", 20), ("test", 6)]:
        lines = []
        for words in texts(count, split, 30):
            tag = "O"
            for word in words:
                tag = "B-X" if word[0] == "k" else "I-X" if tag != "O" and word[0] == "l" else "O"
                lines.append(f"{word} {tag}")
            lines.append("")
        (folder / f"{split}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def question(name, text, *answers, **more):
    return {"id": name, "question": text, "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


def write_squad(path, paragraphs):
    """Writes the official format; `paragraphs`: pairs of a context and its questions."""
    made = [{"context": context, "qas": qas} for context, qas in paragraphs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "2.0", "data": [{"title": "t", "paragraphs": made}]}), encoding="utf-8")


def squad(folder, train=60):
    """The word after "key" is the answer; every third text has no key."""
    for split, count in [("train", train), ("dev", 21)]:
        rng, paragraphs = random.Random(split), []
        for number in range(count):
            text = [rng.choice(WORDS) for _ in range(rng.randint(8, 30))]
            if number % 3 == 0:
                qa = question(f"{split}-{number}", "what ?", is_impossible=True)
            else:
                place = rng.randrange(len(text))
                text[place : place + 1] = ["key", text[place].capitalize()]
                qa = question(f"{split}-{number}", "what ?", (text[place + 1], len(" ".join(text[: place + 1])) + 1))
            paragraphs.append((" ".join(text), [qa]))
        write_squad(folder / f"{split}.json", paragraphs)
    return folder


def blimp(folder):
    """Three paradigms of two terms, in BLiMP's form: texts, and their words in another order."""
    folder.mkdir(parents=True)
    for term, paradigm in [("islands", "first"), ("islands", "second"), ("agreement", "third")]:
        lines = []
        for words in texts(5, paradigm):
            pair = {"sentence_good": " ".join(words), "sentence_bad": " ".join(sorted(words))}
            lines.append(json.dumps({**pair, "linguistics_term": term, "UID": paradigm}) + "\n")
        (folder / f"{paradigm}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


KINDS = {"mae_lm_sentences": sentences, "mae_lm_tokens": tags, "squad": squad}


def arguments(task, data, labelled, checkpoint, *more):
    """Of fairseq-train, for a fine-tuning of 12 updates without dropout."""
    options = ["--task", task, "--criterion", task, "--labelled", labelled, "--finetune-from-model", checkpoint]
    options += ["--arch", "mae_lm", "--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0]
    options += ["--batch-size", 8, "--required-batch-size-multiple", 1, "--optimizer", "torch_adamw", "--lr", 0.003]
    options += ["--lr-scheduler", "polynomial_decay", "--total-num-update", 400, "--max-update", 12, "--seed", 1]
    options += ["--num-workers", 0, "--cpu", "--log-format", "json", "--log-interval", 1, "--no-epoch-checkpoints"]
    return [data, "--user-dir", PLUGIN, *options, *more]


def finetune(task, data, labelled, checkpoint, save_dir, *more):
    """Runs it; returns what was printed."""
    return succeed("fairseq-train", *arguments(task, data, labelled, checkpoint, "--save-dir", save_dir, *more))


def of_fairseq(folder, lines, labels, dictionary):
    """Data of fairseq's own sentence_prediction, as RoBERTa's script for GLUE binarizes them; a run's arguments."""
    for name, column, symbols in [("input0", lines, dictionary), ("label", labels, sorted({*labels}))]:
        text = "\n".join(column) + "\n"
        binarize(folder / name, {"train": text, "valid": text}, symbols)
    at = TINY.index("--tokens-per-sample")
    options = [*TINY[:at], *TINY[at + 2 :], "--task", "sentence_prediction", "--criterion", "sentence_prediction"]
    return [folder, *options, "--num-classes", len({*labels}), "--init-token", 0, "--separator-token", 2]
