"""Predicts labels for a file of texts with a fine-tuned model.

    python -m maelm_fairseq.predict --checkpoint FILE --data DIR --texts FILE --dest FILE.tsv

--texts has a text in each line, plain or gzip; for a model of pairs, two texts with a tab between
them. --dest receives a line for each, in the same order and in the columns that fine-tuning reads:
`label` with its `probability`, or the `score` of a regression, then the text. For a model that tags
words, it receives a word and its tag in each line, and a blank line after each text.
"""

from . import hub
from .base.command_line import Parser
from .base.errors import UsageError
from .base.running import run_main
from .checkpoints.building import default_device
from .inference.classification import check_can_predict, is_regression, is_tagger
from .inference.text_labelling import (
    Labeller,
    add_file_options,
    check_files,
    format_value,
    label_file,
    table_header,
    table_row,
    tagged_lines,
)


def parse_args():
    parser = Parser("python -m maelm_fairseq.predict", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="FILE_or_DIR", help="a fine-tuned model")
    add("--data", required=True, metavar="DIR", help="folder with its vocabulary")
    add_file_options(add)
    return parser.parse_args()


def load_model(checkpoint, data):
    """Loads a `hub.MaeLm`, onto the GPU if there is one."""
    return hub.from_pretrained(checkpoint, data=data).to(default_device())


def check_head(model, checkpoint):
    """Refuses a model, from the path `checkpoint`, that cannot label a file of texts."""
    try:
        check_can_predict(model, are_pairs=model.info.texts_per_example == 2)
    except UsageError as error:
        raise UsageError(f"--checkpoint {checkpoint}: {error}") from None


class EncoderLabeller(Labeller):
    """Labels texts by a fine-tuned `hub.MaeLm`."""

    name = "an encoder"

    def __init__(self, model):
        self.model = model
        self.texts_per_line = model.info.texts_per_example
        self.tags = model.info.labels if is_tagger(model) else None

    def header(self):
        if is_tagger(self.model):
            return ""
        columns = ["score"] if is_regression(self.model) else ["label", "probability"]
        return table_header(columns, self.texts_per_line)

    def lines(self, texts):
        columns = map(list, zip(*texts))
        predictions = self.model.predict(*columns)
        if is_tagger(self.model):
            return map(tagged_lines, predictions)
        return map(table_row, map(prediction_fields, predictions), texts)


def prediction_fields(prediction):
    """The fields of a prediction: a value, or the most probable label and its probability."""
    if isinstance(prediction, float):
        return [format_value(prediction)]
    label = max(prediction, key=prediction.get)
    return [label, f"{prediction[label]:.4f}"]


def main():
    args = parse_args()
    check_files(args.texts, args.dest)
    model = load_model(args.checkpoint, args.data)
    check_head(model, args.checkpoint)
    label_file(EncoderLabeller(model), args.texts, args.dest)


if __name__ == "__main__":
    run_main(main)
