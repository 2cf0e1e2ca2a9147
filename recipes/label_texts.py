#!/usr/bin/env python3
"""Labels new texts with a bag of words, or with a bag of words and a fine-tuned encoder together.

    python recipes/label_texts.py --labelled DIR --texts FILE --dest FILE.tsv [--checkpoint FILE --data DIR]

The bag of words is trained on the labelled files, in seconds. --texts has a text in each line, plain or gzip; for
pairs, two texts with a tab between them. --dest receives a line for each, in the same order, in the columns that
fine-tuning reads: the label, or the value, then the text. For an encoder alone: python -m maelm_fairseq.predict.
"""

import itertools

import numpy as np

from maelm_fairseq import hub
from maelm_fairseq.base.errors import Parser, UsageError, run
from maelm_fairseq.base.files import atomic_write, check_new
from maelm_fairseq.evaluation.bag_of_words import Counts, Labelled, vote
from maelm_fairseq.evaluation.votes import answer, spread, together
from maelm_fairseq.predict import chunks, text_columns

LEAST = 1e-30  # probability, whose logarithm is a vote


def of_encoder(model, texts, classes):
    """The outputs of a fine-tuned encoder for n texts, tuples of one or two: (n, classes), or (n, 1) for values."""
    predictions = model.predict(*map(list, zip(*texts)))
    if classes is None:
        return np.array(predictions)[:, None]
    return np.log(np.maximum([[prediction[name] for name in classes] for prediction in predictions], LEAST))


def check_outputs(model, classes, checkpoint):
    """Refuses an encoder that was fine-tuned on something else than the labelled files."""
    if not model.facts.of_sentences:
        raise UsageError(f"--checkpoint {checkpoint}: expected a model that finetune_glue.sh has fine-tuned")
    found, expected = described(model.facts.labels), described(classes)
    if found != expected:
        fix = "give the folder that it was fine-tuned on"
        raise UsageError(f"--checkpoint {checkpoint}: it predicts {found}, expected {expected} of --labelled; {fix}")


def described(classes):
    """What is predicted, in words."""
    return "values" if classes is None else f"the labels {', '.join(classes)}"


def label(labelled, texts, model=None):
    """The labels, or the values, of n texts: list.

    Args:
        labelled: `bag_of_words.Labelled`
        texts: tuples of one text or two
        model: a fine-tuned `hub.MaeLm` that votes, too, or None
    """
    dev = next(iter(labelled.files.values()))
    new = np.arange(len(labelled.texts), len(labelled.texts) + len(texts))
    bag_of_words = vote(Counts([*labelled.texts, *texts]), labelled.targets, labelled.train, np.append(dev, new))
    of_dev, votes = np.split(bag_of_words, [len(dev)])
    if model is not None:
        encoder = of_encoder(model, [labelled.texts[number] for number in dev], labelled.classes)
        spreads = spread(encoder), spread(of_dev)
        votes = together(of_encoder(model, texts, labelled.classes), votes, spreads)
    answers = answer(votes).tolist()
    return answers if labelled.classes is None else [labelled.classes[int(number)] for number in answers]


def main():
    parser = Parser("label_texts.py", description=__doc__)
    add = parser.add_argument
    add("--labelled", required=True, metavar="DIR", help="folder of the labelled files, as for finetune_glue.sh")
    add("--regression", action="store_true", help="a column `label` has numbers to predict")
    add("--texts", required=True, metavar="FILE", help="a text in each line")
    add("--dest", required=True, metavar="FILE.tsv", help="new file to write")
    add("--checkpoint", metavar="FILE_or_DIR", help="an encoder fine-tuned on the same files, which then votes, too")
    add("--data", metavar="DIR", help="folder with the encoder's vocabulary")
    args = parser.parse_args()
    if (args.checkpoint is None) != (args.data is None):
        raise UsageError("--checkpoint and --data belong together: give both, or none for the bag of words alone")
    check_new(args.dest)
    labelled, model = Labelled(args.labelled, args.regression), None
    if args.checkpoint:
        model = hub.from_pretrained(args.checkpoint, data=args.data)
        check_outputs(model, labelled.classes, args.checkpoint)
    columns = len(labelled.texts[0])
    texts = [tuple(each) for each in itertools.chain.from_iterable(chunks(args.texts, columns))]
    if not texts:
        raise UsageError(f"{args.texts}: it is empty, expected a text in each line")
    answers = label(labelled, texts, model)
    with atomic_write(args.dest, new=True) as stream:
        stream.write("\t".join(["score" if labelled.classes is None else "label", *text_columns(columns)]) + "\n")
        for predicted, each in zip(answers, texts):
            shown = f"{predicted:.4f}" if labelled.classes is None else predicted
            stream.write("\t".join([shown, *each]) + "\n")
    print(f"written: {args.dest}, {len(texts):,} texts")


if __name__ == "__main__":
    run(main)
