"""Predicts labels for a file of texts with a fine-tuned model.

    python -m maelm_fairseq.predict --checkpoint FILE --data DIR --texts FILE --dest FILE.tsv

--texts has a text in each line, plain or gzip; for a model of pairs, two texts with a tab between
them. --dest receives a line for each, in the same order and in the columns that fine-tuning reads:
`label` with its `probability`, or the `score` of a regression, then the text. For a model that tags
words, it receives a word and its tag in each line, and a blank line after each text.
"""

import os
from pathlib import Path

from tqdm import tqdm

from . import hub
from .base.command_line import Parser
from .base.destinations import check_new_file
from .base.errors import UsageError, counted
from .base.files import atomic_write
from .base.opening import open_to_read
from .base.running import run_main
from .base.utf8 import read_lines
from .checkpoints.building import default_device
from .inference.classification import check_can_predict

CHUNK_TEXTS = 1000  # texts that are predicted together


def parse_args():
    parser = Parser("python -m maelm_fairseq.predict", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="FILE_or_DIR", help="a fine-tuned model")
    add("--data", required=True, metavar="DIR", help="folder with its vocabulary")
    add("--texts", required=True, metavar="FILE", help="a text in each line; may be a pipe")
    add("--dest", required=True, metavar="FILE.tsv", help="new file to write")
    return parser.parse_args()


def check_output_path(path):
    """Refuses a table to write that exists or cannot be written, or whose name ends in .gz."""
    check_new_file(path)
    if path.endswith(".gz"):
        raise UsageError(f"--dest {path}: it is written as plain text; choose a name without .gz")


def check_text_file(path):
    """Refuses a file of texts that is not there, before any work; a pipe can be opened only once.

    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is something else
        OSError: it cannot be read
    """
    if not Path(path).is_fifo():
        open_to_read(path, "a file with a text in each line").close()


def check_head(model, checkpoint):
    """Refuses a model, from the path `checkpoint`, that cannot label a file of texts."""
    try:
        check_can_predict(model, are_pairs=model.info.texts_per_example == 2)
    except UsageError as error:
        raise UsageError(f"--checkpoint {checkpoint}: {error}") from None


def chunks_of_file(path, texts_per_line):
    """Yields lists of up to CHUNK_TEXTS lines of a file, each a list of one text or of two."""
    chunk = []
    size = os.path.getsize(path)
    with tqdm(desc="predict", total=size, unit="B", unit_scale=True, disable=None) as bar:
        for number, line in read_lines(path, bar.update, allow_pipe=True):
            texts = line.split("\t")
            if len(texts) != texts_per_line:
                expected = described_columns(texts_per_line)
                found = counted(len(texts), "column")
                raise UsageError(f"{path}: line {number}: found {found}, expected {expected}")
            chunk.append(texts)
            if len(chunk) == CHUNK_TEXTS:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def described_columns(texts_per_line):
    """What a line should have, in words."""
    if texts_per_line == 1:
        return (
            "one text without a tab: from a table, first extract the column of the texts, for "
            "example with tail -n +2 FILE | cut -f N, where N is its number, from 1"
        )
    return "two texts with a tab between them, as the examples of training are pairs"


def check_not_tagged(path, texts, labels):
    """Refuses texts that are lines of a tagged file, where texts to tag are expected.

    Args:
        path: of their file
        texts: the first ones
        labels: the known tags
    """
    lines = [text.split() for text in texts if text.strip()]
    # A punctuation mark may be a tag, and is the last word of many texts.
    labels = {label for label in labels if any(map(str.isalnum, label))}
    tagged = [words for words in lines if len(words) > 1 and words[-1] in labels]
    if len(tagged) > len(lines) / 2:
        raise UsageError(
            f"{path}: found a word and its tag in a line, such as {' '.join(tagged[0])!r}, "
            "expected a text in each line; join the words of each sentence, without their tags"
        )


def tagged_text(words):
    """The lines of a text whose words are pairs of a word and its tag."""
    return "".join(f"{word}\t{tag}\n" for word, tag in words) + "\n"


def score_text(score):
    """A predicted value as text, with all digits that a float32 has."""
    return f"{score:.10g}"


def table_line(prediction, texts):
    """A line of the table: the prediction, and the texts."""
    if isinstance(prediction, float):
        fields = [score_text(prediction)]
    else:
        label = max(prediction, key=prediction.get)
        fields = [label, f"{prediction[label]:.4f}"]
    return "\t".join([*fields, *texts]) + "\n"


def text_columns(texts_per_line):
    """The names of the columns of texts, as fine-tuning reads them."""
    return ["sentence"] if texts_per_line == 1 else ["sentence1", "sentence2"]


def format_header(prediction, texts_per_line):
    """The line with the names of the columns."""
    columns = ["score"] if isinstance(prediction, float) else ["label", "probability"]
    return "\t".join([*columns, *text_columns(texts_per_line)]) + "\n"


def main():
    args = parse_args()
    check_output_path(args.dest)
    check_text_file(args.texts)
    model = hub.from_pretrained(args.checkpoint, data=args.data)
    check_head(model, args.checkpoint)
    model.to(default_device())
    texts_per_line = model.info.texts_per_example
    tags_words = bool(model.info.labels) and not model.info.is_of_sentences
    count = 0
    with atomic_write(args.dest, must_be_new=True) as stream:
        for chunk in chunks_of_file(args.texts, texts_per_line):
            columns = list(map(list, zip(*chunk)))
            if tags_words:
                check_not_tagged(args.texts, columns[0], model.info.labels)
            predictions = model.predict(*columns)
            if isinstance(predictions[0], list):
                stream.writelines(map(tagged_text, predictions))
            else:
                if count == 0:
                    stream.write(format_header(predictions[0], texts_per_line))
                stream.writelines(map(table_line, predictions, chunk))
            count += len(chunk)
        if count == 0:
            raise UsageError(f"{args.texts}: it is empty, expected a text in each line")
    print(f"written: {args.dest}, {counted(count, 'text')}")


if __name__ == "__main__":
    run_main(main)
