#!/usr/bin/env python3
"""Shows how to use a pretrained model from Python: fills masks, and compares sentences by their features."""

import torch.nn.functional as F

from maelm_fairseq import hub
from maelm_fairseq.engine.errors import Parser, run

MASKED = [
    "this is one of the best <mask> i have ever seen .",
    "i did not <mask> this movie at all .",
    "the acting is <mask> and the story is boring .",
    "he plays the <mask> of a man who lost his wife .",
    "do not waste your <mask> on this film .",
]
SENTENCES = [
    "this is the best film of the year .",
    "one of the worst movies i have ever seen .",
    "a young man falls in love with a girl from a rich family .",
    "his wife leaves him and he moves to the city with their son .",
    "the music is loud and the special effects look cheap .",
    "the camera work and the costumes are beautiful .",
]


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="a .pt file from pretraining, or its folder")
    parser.add_argument("--data", required=True, help="folder of the model's dict.txt and sentencepiece.model")
    args = parser.parse_args()
    model = hub.from_pretrained(args.checkpoint, data=args.data)

    print("What it fills in:")
    for sentence in MASKED:
        print("  " + sentence)
        for candidates in model.fill_mask(sentence):
            print("      " + "   ".join("{} {:.0%}".format(piece, p) for piece, p in candidates))

    features = model.extract_features(SENTENCES, all_layers=True)
    print("\nFeatures of sentences, (layers, sentences, tokens, width): {}".format(tuple(features.shape)))
    print("Nearest to each, by the cosine of the last layer's mean over tokens:")
    real = model.encode(SENTENCES).ne(model.dictionary.pad())
    means = features[-1].sum(1) / real.sum(1, keepdim=True)
    unit = F.normalize(means - means.mean(0), dim=1)  # without the shared component
    cosine, nearest = (unit @ unit.t()).fill_diagonal_(-1).max(1)
    for sentence, i, similarity in zip(SENTENCES, nearest.tolist(), cosine.tolist()):
        print("  {}\n      {}  {:.2f}".format(sentence, SENTENCES[i], similarity))


if __name__ == "__main__":
    run(main)
