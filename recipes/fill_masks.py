#!/usr/bin/env python3
"""Shows what a pretrained model fills into masked sentences."""

import argparse
import logging
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SENTENCES = [
    "this is one of the best <mask> i have ever seen .",
    "i did not <mask> this movie at all .",
    "the acting is <mask> and the story is boring .",
    "he plays the <mask> of a man who lost his wife .",
    "do not waste your <mask> on this film .",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="a .pt file that pretraining wrote")
    parser.add_argument("--data", required=True, help="the folder of binarized data that it was trained on")
    parser.add_argument("--topk", type=int, default=5, help="how many candidates to show")
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="with <mask> in them; default: five on films")
    args = parser.parse_args()

    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    from maelm_fairseq.hub import from_pretrained

    model = from_pretrained(args.checkpoint, data=args.data)
    for sentence in args.sentences:
        print("  " + sentence)
        for candidates in model.fill_mask(sentence, topk=args.topk):
            print("      " + "   ".join("{} {:.0%}".format(piece, p) for piece, p in candidates))


if __name__ == "__main__":
    main()
