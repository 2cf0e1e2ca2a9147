#!/usr/bin/env python3
"""Shows what a pretrained model has learned: how it fills masks, and which words it finds similar.

With texts of your own, it fills the masks in those.
"""

import torch.nn.functional as F

from maelm_fairseq import hub
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.running import run_main
from maelm_fairseq.base.words import WORD_START

MASKED = [
    "the acting <mask> terrible .",
    "he <mask> not know what to do .",
    "i did not <mask> this movie at all .",
    "do not waste your <mask> on this film .",
    "this is one of the best <mask> i have ever seen .",
]
QUERY_WORDS = ["film", "he", "watched", "good", "his"]


def main():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, help="a .pt file from pretraining, or its folder")
    add("--data", required=True, help="folder of the model's vocabulary")
    add("texts", nargs="*", metavar="TEXT", help="a sentence with <mask> in it, in quotes")
    args = parser.parse_args()
    model = hub.from_pretrained(args.checkpoint, data=args.data)

    texts = args.texts or MASKED
    filled = [model.fill_mask(text) for text in texts]
    print("What it fills in:")
    for text, masks in zip(texts, filled):
        print("  " + text)
        for candidates in masks:
            shown = [f"{piece} {probability:.0%}" for piece, probability in candidates]
            print("      " + "   ".join(shown))
    if args.texts:
        return

    known_words = [word for word in QUERY_WORDS if WORD_START + word in model.dictionary]
    if not known_words:  # the vocabulary is of another language
        return
    print("\nWords that it finds similar, by the cosine of their embeddings:")
    embeddings = model.model.embed_tokens.weight.detach()
    unit = F.normalize(embeddings - embeddings.mean(0), dim=1)  # without the shared component
    for word in known_words:
        index = model.dictionary.index(WORD_START + word)
        cosines = unit @ unit[index]
        _, *nearest = cosines.topk(6).indices.tolist()  # the first is the word itself
        pieces = [model.dictionary[i].replace(WORD_START, "") for i in nearest]
        print(f"  {word}: {', '.join(pieces)}")


if __name__ == "__main__":
    run_main(main)
