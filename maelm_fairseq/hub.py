"""A pretrained model from Python: load a checkpoint, turn text into tokens and back, fill in masks."""

import os

import sentencepiece
import torch

from fairseq import checkpoint_utils

from .errors import MissingFileError, UsageError

MASK = "<mask>"


def from_pretrained(checkpoint_file, data):
    """Loads a pretraining checkpoint.

    Args:
        checkpoint_file: path of a `.pt` file
        data: folder with the `dict.txt` and `sentencepiece.model` that it was trained with
    Returns:
        :class:`MaeLm`, in evaluation mode on the CPU
    Raises:
        FileNotFoundError: one of the three files is not there
    """
    checkpoint_file, data = os.fspath(checkpoint_file), os.fspath(data)
    model_file = os.path.join(data, "sentencepiece.model")
    for path in [checkpoint_file, os.path.join(data, "dict.txt"), model_file]:
        if not os.path.isfile(path):
            raise MissingFileError(f"{path}: not found, expected a checkpoint, and the folder of its data")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([checkpoint_file], {"data": data})
    return MaeLm(models[0].eval(), task, sentencepiece.SentencePieceProcessor(model_file=model_file))


class MaeLm:
    """A model with the vocabulary that it was trained with."""

    def __init__(self, model, task, pieces):
        self.model = model
        self.dictionary = task.source_dictionary
        self.pieces = pieces

    def encode(self, text: str) -> torch.Tensor:
        """Text, `<mask>` where a token is to be filled in, -> int64 (T,): `<s>`, pieces, `</s>`."""
        tokens = [self.dictionary.bos()]
        for i, part in enumerate(text.split(MASK)):
            pieces = self.pieces.encode(part, out_type=str)
            if i:
                tokens.append(self.dictionary.index(MASK))
                if pieces and not part[0].isspace():  # "<mask>." is no new word
                    pieces[0] = pieces[0][1:]
            tokens += [self.dictionary.index(piece) for piece in pieces if piece]
        return torch.tensor(tokens + [self.dictionary.eos()])

    @torch.no_grad()
    def fill_mask(self, text: str, topk: int = 5):
        """What the model expects at each `<mask>`, the way it was pretrained: the mask left out of the encoder.

        Args:
            text: with one `<mask>` or several
            topk: how many candidates
        Returns:
            for each mask a list of (piece, probability), likeliest first
        """
        tokens = self.encode(text)
        masked = tokens.eq(self.dictionary.index(MASK))
        if not masked.any():
            raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be filled in")
        if len(tokens) > self.model.max_positions():
            raise UsageError(f"{len(tokens)} tokens, but the model has {self.model.max_positions()} positions")
        positions = torch.arange(len(tokens))
        logits = self.model(
            tokens[~masked][None],
            positions[~masked][None],
            positions[masked][None],
            num_predicted=int(masked.sum()),
            padded=False,
        )
        # Only pieces of text are candidates.
        logits[..., : self.dictionary.nspecial] = float("-inf")
        logits[..., self.dictionary.index(MASK)] = float("-inf")
        best = logits[0].softmax(-1).topk(topk)
        return [
            [(self.dictionary[i].replace("\u2581", " ").strip(), p) for i, p in zip(row, probabilities)]
            for row, probabilities in zip(best.indices.tolist(), best.values.tolist())
        ]
