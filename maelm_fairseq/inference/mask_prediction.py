"""What a pretrained model predicts at masks: it fills them, and scores texts by them.

Letters in shapes: B texts, T tokens of a text, K masks of a text, N tokens of the vocabulary.
"""

import math
import operator

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..base.errors import UsageError
from ..base.text_input import checked_text, list_of_texts
from ..base.tokenizer import MASK, join_and_cut
from ..vocabulary import dictionary_word_starts
from .encoding import BATCH_TOKENS
from .text_model import SHORTEN_OR_SPLIT, TextModel


class MaskPrediction(TextModel):
    """A model that predicts masked tokens."""

    @torch.no_grad()
    def fill_mask(self, text, topk=5):
        """Predicts each `<mask>` as in pretraining: left out of the encoder, but for an MLM.

        Only pieces are candidates: probabilities are renormalised without special symbols and
        `<mask>`, to a sum of 1.

        Args:
            text: a string with one `<mask>` or more
            topk: number of candidates
        Returns: for each mask a list of (piece, probability), the most probable first
        """
        topk = int(operator.index(topk))
        candidates = len(self.dictionary) - self.dictionary.nspecial - 1
        if not 1 <= topk <= candidates:
            raise UsageError(f"topk {topk} must be from 1 to {candidates}, the number of pieces")
        tokens = self._tokens_of_text(checked_text(text)).to(self.device)
        self._check_length(len(tokens), advice=SHORTEN_OR_SPLIT)
        masked = tokens.eq(self.mask_id).nonzero()[:, 0]
        if not len(masked):
            raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be predicted")
        logits = self._predict_masked(tokens[None], masked[None])
        no_candidates = [*range(self.dictionary.nspecial), self.mask_id]
        logits[..., no_candidates] = float("-inf")
        best = logits[0].softmax(-1).topk(topk)
        filled = []
        for sequence, probabilities in zip(best.indices.tolist(), best.values.tolist()):
            pieces = [self.tokenizer.token_text(token) for token in sequence]
            filled.append(list(zip(pieces, probabilities)))
        return filled

    def _predict_masked(self, tokens, masked):
        """Logits (n, K, N) at positions `masked` (n, K) of tokens (n, T), masked as in pretraining.

        The tokens have no padding.
        """
        if self.model.lm_head is None:
            raise UsageError(
                "the checkpoint is fine-tuned and has no decoder: predict masks with a pretrained "
                "one"
            )
        K = masked.size(1)
        tokens = tokens.scatter(1, masked, self.mask_id)
        is_visible = torch.ones_like(tokens, dtype=torch.bool).scatter(1, masked, False)
        visible = is_visible.nonzero()[:, 1].view(len(tokens), -1)
        if self.masks_in_encoder:
            # Predicted positions come last, as in pretraining.
            visible = torch.cat([visible, masked], dim=1)
            masked = masked[:, :0]
        visible_tokens = tokens.gather(1, visible)
        return self.model(visible_tokens, visible, masked, num_predicted=K, has_padding=False)

    @torch.no_grad()
    def score(self, texts, within_words=True, truncate=False):
        """How well the model predicts texts: the pseudo-log-likelihood of each, in bits.

        Each token but `<s>` and `</s>` is predicted from all others (Salazar et al., 2020), except
        those of the same word on its right, which would give it away (PLL-word-l2r of Kauf and
        Ivanova, 2023).

        Args:
            texts: a string or a list of B strings, in which nothing is a symbol: `<mask>` is text
            within_words: hide the rest of the word
            truncate: cut longer texts to the model's positions
        Returns: (bits, number of tokens), bits a sum; for a list, a list of B of them
        """
        limit = self.model.max_positions() if truncate else None
        tokens, sizes = self.tokenizer.encode_plain_text(list_of_texts(texts))
        sequences = []
        for size, end in zip(sizes, sizes.cumsum()):
            part = tokens[end - size : end].tolist()
            sequences.append(torch.tensor(join_and_cut([part], limit)[0]))
        positions_by_shape = self._positions_to_score(sequences, within_words)
        bits = torch.zeros(len(sequences), dtype=torch.float64)
        total = sum(len(sequence) - 2 for sequence in sequences)
        bar = tqdm(desc="score", total=total, unit=" tokens", leave=False, disable=None)
        for (T, K), positions in positions_by_shape.items():  # equally long: no batch has padding
            for batch in torch.tensor(positions).split(max(1, BATCH_TOKENS // T)):
                bar.update(len(batch))
                indices, first = batch[:, 0], batch[:, 1:]
                tokens = torch.stack([sequences[index] for index in indices]).to(self.device)
                masked = (first + torch.arange(K)).to(self.device)
                logits = self._predict_masked(tokens, masked)[:, 0].float()
                targets = tokens.gather(1, masked[:, :1])[:, 0]
                losses = F.cross_entropy(logits, targets, reduction="none")
                bits.index_add_(0, indices, losses.double().cpu() / math.log(2))
        bar.close()
        scores = [
            (text_bits, len(sequence) - 2) for text_bits, sequence in zip(bits.tolist(), sequences)
        ]
        return scores[0] if isinstance(texts, str) else scores

    def _positions_to_score(self, sequences, within_words):
        """Where to put masks in texts (T_i,), so that each token is once the first one masked.

        Returns: {(T, K): [(index of the text of T tokens, first of the K tokens to mask)]}
        """
        starts = dictionary_word_starts(self.dictionary) if within_words else None
        positions = {}
        for index, sequence in enumerate(sequences):
            self._check_length(len(sequence), f"text {index + 1} of {len(sequences)}")
            for first in range(1, len(sequence) - 1):
                end = first + 1
                while within_words and end < len(sequence) - 1 and not starts[sequence[end]]:
                    end += 1
                positions.setdefault((len(sequence), end - first), []).append((index, first))
        return positions
