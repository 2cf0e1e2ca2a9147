"""A SentencePiece model, and dict.txt: its pieces from id 3 on; fairseq's id is then SentencePiece's + 1."""

import os

import sentencepiece

from maelm_fairseq.base.errors import MissingFileError, UsageError

VOCABULARY = ("sentencepiece.model", "dict.txt")  # its files
SENTENCEPIECE_SPECIALS = ["<unk>", "<s>", "</s>"]
FAIRSEQ_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def load_model(path):
    """Loads a SentencePieceProcessor and checks that fairseq can use it.

    Raises:
        UsageError: no such file; not a model; ids 0 to 2 are not `<unk> <s> </s>`; a piece is one of fairseq's special
            symbols, or contains white space
    """
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected a SentencePiece model; check the path")
    with open(path, "rb") as stream:
        model = stream.read()  # SentencePiece itself opens no path that is not UTF-8
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = all_pieces(processor) if model else []
    except (RuntimeError, UnicodeDecodeError):
        pieces = []
    if not pieces:
        raise UsageError(f"{path} is not a SentencePiece model; expected the .model file of a trained one")
    if pieces[:3] != SENTENCEPIECE_SPECIALS:
        raise UsageError(
            f"{path}: pieces 0 to 2 are {' '.join(pieces[:3])}; expected {' '.join(SENTENCEPIECE_SPECIALS)}; train the"
            " model with SentencePiece's default ids"
        )
    for piece in pieces[3:]:
        if piece in FAIRSEQ_SPECIALS or piece.split() != [piece]:
            raise UsageError(
                f"{path}: piece {piece!r} is a special symbol of fairseq's, or contains white space, at which fairseq"
                " would split it; train a model without it"
            )
    return processor


def load_vocabulary(folder):
    """The SentencePieceProcessor of a folder that prepare.sh wrote.

    Raises:
        UsageError: one of the two files is missing or cannot be used, or they do not match
    """
    model, dictionary = (os.path.join(folder, name) for name in VOCABULARY)
    processor = load_model(model)
    if not os.path.exists(dictionary):
        raise MissingFileError(f"{dictionary} does not exist; expected a folder that prepare.sh wrote")
    with open(dictionary, encoding="utf-8", errors="replace", newline="\n") as stream:
        if stream.read() != dict_text(processor):
            raise UsageError(
                f"{dictionary} is not the dictionary of the sentencepiece.model beside it; expected its pieces from id"
                " 3 on; give a folder that prepare.sh wrote, or remove this one and run prepare.sh again"
            )
    return processor


def all_pieces(processor):
    """All pieces, in the order of their SentencePiece ids."""
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def dict_text(processor):
    """The contents of dict.txt: the pieces from id 3 on, a line `piece 1` for each."""
    return "".join(piece + " 1\n" for piece in all_pieces(processor)[3:])
