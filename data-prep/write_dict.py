#!/usr/bin/env python3
"""Writes dict.txt for a SentencePiece model: its pieces from id 3 on; fairseq's id is then SentencePiece's + 1."""

import sentencepiece

from command_line import InputError, Parser, run
from files import atomic_write

SENTENCEPIECE_SPECIALS = ["<unk>", "<s>", "</s>"]
FAIRSEQ_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def load_model(path):
    """Loads a SentencePieceProcessor and checks that fairseq can use it.

    Raises:
        FileNotFoundError: no such file
        InputError: not a model; ids 0 to 2 are not `<unk> <s> </s>`; a piece is one of fairseq's special symbols, or
            contains white space
    """
    try:
        with open(path, "rb") as stream:
            processor = sentencepiece.SentencePieceProcessor(model_proto=stream.read())
    except FileNotFoundError:
        raise FileNotFoundError(f"SentencePiece model {path} does not exist; check the path") from None
    except (RuntimeError, TypeError):
        raise InputError(f"{path} is not a SentencePiece model; expected the .model file of a trained one") from None
    names = all_pieces(processor)
    if names[:3] != SENTENCEPIECE_SPECIALS:
        raise InputError(
            f"{path}: pieces 0 to 2 are {' '.join(names[:3])}; expected {' '.join(SENTENCEPIECE_SPECIALS)}; train the"
            " model with SentencePiece's default ids"
        )
    for number, name in enumerate(names[3:], 3):
        if name in FAIRSEQ_SPECIALS or name.split() != [name]:
            raise InputError(
                f"{path}: piece {number} is {name!r}; expected none of {' '.join(FAIRSEQ_SPECIALS)} and no white space,"
                " which fairseq would misread; train a model without it"
            )
    return processor


def all_pieces(processor):
    """All pieces, in the order of their SentencePiece ids."""
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def dict_text(processor):
    """The contents of dict.txt: the pieces from id 3 on, a line `piece 1` for each."""
    return "".join(name + " 1\n" for name in all_pieces(processor)[3:])


def write_dict(model, output):
    """Writes dict.txt; see `load_model` for errors."""
    text = dict_text(load_model(model))
    with atomic_write(output) as stream:
        stream.write(text)


def main():
    parser = Parser(__doc__)
    parser.add_argument("--spm-model", required=True, metavar="FILE", help="SentencePiece model")
    parser.add_argument("--output", required=True, metavar="FILE", help="dict.txt to write")
    args = parser.parse_args()
    write_dict(args.spm_model, args.output)


if __name__ == "__main__":
    run(main)
