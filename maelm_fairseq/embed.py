"""Writes a vector for each line of a text file: the mean of the encoder's last layer, or --layer, over its tokens.

    python -m maelm_fairseq.embed --checkpoint FILE_or_DIR --data DIR --input FILE --dest FILE.npy

--dest receives float32 (lines, width) for numpy.load, a row for every line, empty ones too. `<s>` and `</s>` count as
tokens, as sentence-transformers has it. Longer lines are cut to the model's positions.
"""

import os
from itertools import islice

import torch
from numpy.lib.format import write_array_header_1_0
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from . import hub
from .base.errors import Parser, run, within
from .base.files import atomic_write, check_new
from .base.subwords import sequence
from .base.utf8 import read_lines

LINES = 1024  # at a time


def main():
    parser = Parser("python -m maelm_fairseq.embed", description=__doc__)
    parser.add_argument("--checkpoint", required=True, metavar="FILE_or_DIR", help="pretrained or fine-tuned")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of its vocabulary")
    parser.add_argument("--input", required=True, metavar="FILE", help="text, plain or gzip; /dev/stdin for a pipe")
    parser.add_argument("--dest", required=True, metavar="FILE", help="new .npy file to write")
    parser.add_argument("--layer", type=within(0), metavar="K", help="from 0, the embeddings (default: the last)")
    parser.add_argument("--normalize", action="store_true", help="divide each vector by its length")
    args = parser.parse_args()
    check_new(args.dest)
    rows = truncated = 0
    model = hub.from_pretrained(args.checkpoint, args.data).to("cuda" if torch.cuda.is_available() else "cpu")
    positions, width = model.model.max_positions(), model.model.embed_tokens.embedding_dim
    os.makedirs(os.path.dirname(os.path.abspath(args.dest)), exist_ok=True)
    with atomic_write(args.dest, "wb", new=True) as stream:
        header = {"descr": "<f4", "fortran_order": False}
        write_array_header_1_0(stream, {**header, "shape": (0, width)})  # of the same size with any number of rows
        lines = iter(tqdm(read_lines(args.input), unit=" lines", leave=False, disable=None))
        while texts := [text for _, text in islice(lines, LINES)]:
            cut = [sequence([row], positions) for row in model.tokenizer.encode_all(texts)]
            truncated += sum(count > 0 for _, count in cut)
            tokens = pad_sequence([torch.tensor(row) for row, _ in cut], True, model.dictionary.pad())
            stream.write(model.embed(tokens, normalize=args.normalize, layer=args.layer).cpu().numpy().tobytes())
            rows += len(texts)
        stream.seek(0)
        write_array_header_1_0(stream, {**header, "shape": (rows, width)})
    print(f"written: {args.dest}, {rows:,} x {width}; {truncated:,} of the lines cut to {positions} tokens")


if __name__ == "__main__":
    run(main)
