"""A model from Python: load a checkpoint, turn text into tokens and back, features, filled masks, predictions.

Letters in shapes: B texts, T tokens of a text, W words, C width, L layers of the encoder.
"""

import os

import sentencepiece
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from .errors import MissingFileError, UsageError
from .model import MaeLmConfig, MaeLmModel, fingerprint
from .task import WORD_START, load_dictionary

MASK = "<mask>"


def from_pretrained(checkpoint, data=None):
    """Loads a pretrained or fine-tuned model with its vocabulary.

    Args:
        checkpoint: a `.pt` file, or a folder: of its `checkpoint_best.pt`, or else its `checkpoint_last.pt`
        data: folder with the `dict.txt` and `sentencepiece.model` that it was trained with; for predictions also
            `label/dict.txt`, and `input1` where it was fine-tuned on pairs. None: the folder of the checkpoint
    Returns:
        :class:`MaeLm`, in evaluation mode on the CPU
    Raises:
        FileNotFoundError: the checkpoint, `dict.txt` or `sentencepiece.model` is not there
        ValueError: one of them cannot be used, or they do not belong together
    """
    checkpoint_file = find_checkpoint(os.fspath(checkpoint))
    folder = os.path.dirname(checkpoint_file) or "." if data is None else os.fspath(data)
    model_file = os.path.join(folder, "sentencepiece.model")
    for path in [os.path.join(folder, "dict.txt"), model_file]:
        if not os.path.isfile(path):
            raise MissingFileError(
                f"{path}: not found, expected the vocabulary of {checkpoint_file}: give data=, the folder with the "
                "dict.txt and the sentencepiece.model that it was trained with"
            )
    dictionary = load_dictionary(folder)
    state = read_checkpoint(checkpoint_file)
    model = build_model(state, dictionary, checkpoint_file)
    masks_in_encoder = state["cfg"]["task"].get("encoder_mask_fraction") == 1
    return MaeLm(model, dictionary, load_pieces(model_file, dictionary), folder, masks_in_encoder)


def load_model(checkpoint_file, dictionary):
    """Loads the model of a checkpoint: its sizes, its heads, its decoder if it has one; on the CPU.

    Args:
        checkpoint_file: path of a `.pt` file
        dictionary: fairseq's, with `<mask>`, that it was trained with
    Returns:
        :class:`~maelm_fairseq.model.MaeLmModel`, in evaluation mode
    Raises:
        FileNotFoundError: no such file
        ValueError: not a checkpoint of this model, or one of another dictionary
    """
    checkpoint_file = os.fspath(checkpoint_file)
    return build_model(read_checkpoint(checkpoint_file), dictionary, checkpoint_file)


def find_checkpoint(path):
    """The checkpoint that a path means: the file itself, or a folder's best, or else last."""
    if not os.path.isdir(path):
        return path
    names = ["checkpoint_best.pt", "checkpoint_last.pt"]
    for name in names:
        if os.path.isfile(os.path.join(path, name)):
            return os.path.join(path, name)
    there = ", ".join(sorted(os.listdir(path))) or "nothing"
    raise MissingFileError(f"{path}: found neither {' nor '.join(names)}, it has: {there}; name the checkpoint's file")


def read_checkpoint(checkpoint_file):
    """What fairseq wrote into a checkpoint of this plugin; nothing in it is executed."""
    if not os.path.isfile(checkpoint_file):
        raise MissingFileError(f"{checkpoint_file}: not found, expected a checkpoint (a .pt file)")
    try:
        state = torch.load(checkpoint_file, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, after what the file holds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{checkpoint_file}: cannot be read as a checkpoint ({reason}); expected a whole .pt file of fairseq-train"
        ) from None
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or "dictionary_fingerprint" not in weights or not state.get("cfg"):
        raise UsageError(
            f"{checkpoint_file}: not a checkpoint of MAE-LM, expected one that fairseq-train wrote with --arch mae_lm_..."
        )
    return state


def build_model(state, dictionary, checkpoint_file):
    """The model of what :func:`read_checkpoint` gave; see :func:`load_model`."""
    weights, cfg = state["model"], state["cfg"]["model"]
    if weights["dictionary_fingerprint"] != fingerprint(dictionary):
        raise UsageError(
            f"{checkpoint_file}: trained with another dict.txt, of {len(weights['embed_tokens.weight']):,} symbols "
            f"where this one has {len(dictionary):,} (specials and {MASK} counted); use the one that it was trained with"
        )
    cfg = MaeLmConfig(**{name: cfg[name] for name in MaeLmConfig.__dataclass_fields__ if name in cfg})
    model = MaeLmModel(cfg, dictionary, pretraining=any(key.startswith("lm_head.") for key in weights))
    for name in dict.fromkeys(key.split(".")[1] for key in weights if key.startswith("classification_heads.")):
        head = f"classification_heads.{name}."
        if head + "dense.weight" in weights:
            classes, inner = len(weights[head + "out_proj.weight"]), len(weights[head + "dense.weight"])
            model.register_classification_head(name, num_classes=classes, inner_dim=inner)
        else:
            model.register_span_head(name)
    model.load_state_dict(weights, strict=True)
    return model.eval()


def load_pieces(model_file, dictionary):
    """Reads the SentencePiece model of a dictionary: fairseq's token is SentencePiece's id + 1."""
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_file=model_file)
    except (RuntimeError, OSError):
        raise UsageError(f"{model_file}: not a SentencePiece model; expected the one that goes with dict.txt") from None
    names = [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]
    if names != dictionary.symbols[dictionary.nspecial : -1]:
        raise UsageError(
            f"{model_file}: its {len(names):,} pieces are not those of dict.txt beside it, in that order; use the two "
            "files of one run of data-prep/prepare.sh"
        )
    return pieces


class MaeLm:
    """A model with the vocabulary that it was trained with.

    Args:
        model: :class:`~maelm_fairseq.model.MaeLmModel`, in evaluation mode
        dictionary: fairseq's, with `<mask>`
        pieces: SentencePieceProcessor of the same vocabulary
        data: folder of the data, for `label/dict.txt` and `input1`
        masks_in_encoder: whether it was pretrained with each mask in the encoder's input, as an MLM is
    """

    def __init__(self, model, dictionary, pieces, data, masks_in_encoder=False):
        self.model = model
        self.dictionary = dictionary
        self.pieces = pieces
        self.data = data
        self.masks_in_encoder = masks_in_encoder
        self.mask = dictionary.index(MASK)

    def to(self, device):
        """Moves the model; everything then runs there. Gives itself."""
        self.model.to(device)
        return self

    @property
    def device(self):
        return self.model.embed_tokens.weight.device

    def encode(self, text, pair=None):
        """Text to tokens: `<s> a </s>`, or `<s> a </s> </s> b </s>` for a pair.

        Args:
            text: a string, `<mask>` where a token is to be filled in; or a list of B strings
            pair: the second text, or a list of B
        Returns:
            int64 (T,); for lists (B, T), padded at the end
        """
        if not isinstance(text, str):
            return self._padded([self.encode(a, b) for a, b in text_pairs(text, pair)])
        tokens = [self.dictionary.bos(), *self._tokens_of(text), self.dictionary.eos()]
        if pair is not None:
            tokens += [self.dictionary.eos(), *self._tokens_of(pair), self.dictionary.eos()]
        return torch.tensor(tokens)

    def _tokens_of(self, text):
        """Text -> list of tokens, without `<s>` and `</s>`."""
        tokens = []
        for i, part in enumerate(text.split(MASK)):
            pieces = self.pieces.encode(part, out_type=str)
            if i:
                tokens.append(self.mask)
                if pieces and not part[0].isspace():  # "<mask>." is no new word
                    pieces[0] = pieces[0][1:]
            tokens += [self.dictionary.index(piece) for piece in pieces if piece]
        return tokens

    def _padded(self, rows):
        """A list of B tensors (T_i,) -> (B, T)."""
        if not rows:
            raise UsageError("an empty list, expected at least one text")
        return pad_sequence(list(rows), batch_first=True, padding_value=self.dictionary.pad())

    def _check_length(self, length):
        if length > self.model.max_positions():
            raise UsageError(
                f"{length} tokens, but the model has {self.model.max_positions()} positions: shorten or split the text"
            )

    def _head(self, name):
        """The name of a classification head and the head; of the only one for None."""
        heads = self.model.classification_heads
        known = ", ".join(heads) or "none (it is not fine-tuned)"
        if name is None and len(heads) != 1:
            raise UsageError(f"expected one head, the checkpoint has: {known}; name one with head=")
        name = next(iter(heads)) if name is None else name
        if name not in heads:
            raise UsageError(f"no head {name!r}, the checkpoint has: {known}")
        if isinstance(heads[name], nn.Linear):
            raise UsageError(f"head {name!r} is for answers to questions (start and end), expected one for whole texts")
        return name, heads[name]

    @torch.no_grad()
    def head_logits(self, tokens, head=None, batch_size=32):
        """What a classification head gives for many texts; texts of similar length share a batch.

        Args:
            tokens: list of n int64 tensors (T_i,), as `encode` gives them, of any lengths
            head: its name; None for the only one
            batch_size: texts in a batch
        Returns:
            float32 (n, classes) on the CPU, in the order of `tokens`
        """
        name, head = self._head(head)
        lengths = torch.tensor([len(row) for row in tokens], dtype=torch.int64)
        logits = torch.empty(len(tokens), head.out_proj.out_features)
        if len(tokens):
            self._check_length(int(lengths.max()))
        for batch in lengths.argsort(descending=True).split(batch_size) if len(tokens) else []:
            padded = bool(lengths[batch[0]] != lengths[batch[-1]])
            rows = self._padded([tokens[i] for i in batch]).to(self.device)
            output, _ = self.model(rows, padded=padded, classification_head_name=name)
            logits[batch] = output.float().cpu()
        return logits

    @torch.no_grad()
    def fill_mask(self, text: str, topk: int = 5):
        """What the model expects at each `<mask>`, the way it was pretrained: the mask left out of the encoder.

        Args:
            text: with one `<mask>` or several
            topk: how many candidates
        Returns:
            for each mask a list of (piece, probability), likeliest first
        """
        tokens = self.encode(text).to(self.device)
        masked = tokens.eq(self.mask)
        if not masked.any():
            raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be filled in")
        self._check_length(len(tokens))
        positions = torch.arange(len(tokens), device=self.device)
        logits = self.model(
            tokens[~masked][None],
            positions[~masked][None],
            positions[masked][None],
            num_predicted=int(masked.sum()),
            padded=False,
        )
        # Only pieces of text are candidates.
        logits[..., : self.dictionary.nspecial] = float("-inf")
        logits[..., self.mask] = float("-inf")
        best = logits[0].softmax(-1).topk(topk)
        return [
            [(self.dictionary[i].replace(WORD_START, " ").strip(), p) for i, p in zip(row, probabilities)]
            for row, probabilities in zip(best.indices.tolist(), best.values.tolist())
        ]


def text_pairs(texts, pairs):
    """Lists of texts and of their second texts, or None -> list of (text, pair or None)."""
    if pairs is None:
        return [(text, None) for text in texts]
    if isinstance(pairs, str) or len(pairs) != len(texts):
        found = "one text" if isinstance(pairs, str) else len(pairs)
        raise UsageError(f"{len(texts)} texts with {found} as their pairs: expected a list of as many")
    return list(zip(texts, pairs))
