#!/usr/bin/env python3
"""Words with tags: encoders of small.py beside a conditional random field.

    python tags.py files FOLDER --run RUN
        RUN/tags/files: dutch_entities and us_addresses, 80% of the sentences for training, 10% each
        for dev and test, by a hash of their words; and RUN/tags/parts: three quarters of the
        training sentences (of the Dutch ones, half), and as dev.txt the last quarter. FOLDER has
        the archives of the packages seqlearn==0.2 (Dutch newspapers of the 19th century with
        people, places and organisations; National Library of the Netherlands, CC0; its pages are
        cut at full stops) and usaddress==0.5.16 (addresses in 29 parts; DataMade, MIT)
    python tags.py record --run RUN
        adds the results of fine-tuning in RUN/tags to records/tags.csv, and those of trials on
        parts of the training files, in RUN/tags/trials, to records/tags_trials.csv

tags.mk has the steps between the two; small_page.py makes the table of SMALL.md.
"""

import fnmatch
import tarfile
import xml.etree.ElementTree
from pathlib import Path

import pandas as pd

from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.markdown import markdown_table
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.ensemble import TAG_ENSEMBLE
from maelm_fairseq.preparation.stable_hash import split_by_hash, stable_number
from maelm_fairseq.runs.finetune_results import ENCODER
from small_variants import VARIANT_TITLES

RECORDS = Path(__file__).with_name("records")
RECORD = "tags.csv"
TRIALS_RECORD = "tags_trials.csv"
ARCHIVES = {"dutch_entities": "seqlearn-0.2.tar.gz", "us_addresses": "usaddress-0.5.16.tar.gz"}
METRICS = {"dutch_entities": "f1", "us_addresses": "accuracy"}
SCORED_FILES = [(task, file) for task in METRICS for file in ["dev.txt", "test.txt"]]
SENTENCE_END = (".", "!", "?")
WITH_CRF = ", together with a CRF"
TRIALS = "trials"  # the folder of their runs


def read_members(archive, pattern):
    """Yields the contents (bytes) of the files of an archive whose names match a pattern."""
    with tarfile.open(archive) as files:
        for name in sorted(files.getnames()):
            if fnmatch.fnmatch(name, pattern):
                yield files.extractfile(name).read()


def us_addresses(archive):
    """Yields sentences: lists of (word, tag)."""
    for contents in read_members(archive, "*/training/labeled.xml"):
        for address in xml.etree.ElementTree.fromstring(contents):
            yield [(word, part.tag) for part in address for word in (part.text or "").split()]


def dutch_entities(archive):
    """Yields sentences: lists of (word, tag).

    A tag I- without an entity of its kind before it begins one.
    """
    for page in read_members(archive, "*/examples/nerdata/*.bio"):
        sentence = []
        for line in filter(None, page.decode("utf-8").split("\n")):
            word, _, tag = line.rstrip("\r").split(" ")
            before = sentence[-1][1] if sentence else "O"
            if tag.startswith("I-") and before[1:] != tag[1:]:
                tag = f"B{tag[1:]}"
            sentence.append((word, tag))
            if len(word) > 3 and word.rstrip("\"')").endswith(SENTENCE_END):  # no abbreviation
                yield sentence
                sentence = []
        if sentence:
            yield sentence


READERS = {"dutch_entities": dutch_entities, "us_addresses": us_addresses}


def write_files(folder, run):
    """Writes both sets of tagged words; a sentence that repeats is left out."""
    for data, reader in READERS.items():
        archive = folder / ARCHIVES[data]
        if not archive.is_file():
            raise UsageError(f"{folder}: expected {archive.name}, found no such file; see tags.mk")
        sentences = {}
        for sentence in reader(archive):
            sentences.setdefault(" ".join(word for word, _ in sentence), sentence)
        lines = {"train": [], "dev": [], "test": []}
        parts = {"train": [], "dev": [], "left out": []}
        for text, sentence in sentences.items():
            split = split_by_hash(text)
            lines[split] += lines_of(sentence)
            if split == "train":
                part = part_of_training(data, text)
                parts[part] += lines_of(sentence)
        write_splits(lines, run / "tags" / "files" / data)
        write_splits({"train": parts["train"], "dev": parts["dev"]}, run / "tags" / "parts" / data)


def part_of_training(data, text):
    """To which part a training sentence belongs in trials."""
    quarter = stable_number(f"trial {text}") % 4
    if data == "dutch_entities" and quarter == 0:
        return "left out"
    return "dev" if quarter == 1 else "train"


def lines_of(sentence):
    return [f"{word} {tag}\n" for word, tag in sentence] + ["\n"]


def write_splits(lines, dest):
    """Writes {split: lines} into a folder."""
    dest.mkdir(parents=True, exist_ok=True)
    for split, split_lines in lines.items():
        with atomic_write(dest / f"{split}.txt") as stream:
            stream.writelines(split_lines)


def scored_rows(path):
    """The rows of a recipe's table with the metric of their task."""
    table = pd.read_csv(path, sep="\t")
    return table[table.metric == table.task.map(METRICS)].itertuples()


def write_trials(run):
    """Records the trials of settings, by the recipe's table, if there are any."""
    path = run / "tags" / TRIALS / "results.tsv"
    if not path.exists():
        return
    rows = []
    for row in scored_rows(path):
        if row.predictor == ENCODER:
            setting, _, options = row.settings.partition(" ")
            name = " ".join([setting.rpartition("-")[0], options]).strip()  # without a checksum
            rows.append([row.task, name, row.median, row.standard_error])
    add_to_record(TRIALS_RECORD, rows, ["task", "setting", "score", "error"], num_keys=2)


def add_to_record(name, rows, columns, num_keys):
    """Writes rows into a record, in place of those with the same first `num_keys` columns."""
    path = RECORDS / name
    records = pd.DataFrame(rows, columns=columns)
    if path.exists():
        records = pd.concat([pd.read_csv(path, keep_default_na=False), records])
    records = records.drop_duplicates(columns[:num_keys], keep="last")
    with atomic_write(path) as stream:
        records.to_csv(stream, index=False)


def trial_table():
    """The table of SMALL.md of the trials: settings by tasks."""
    records = pd.read_csv(RECORDS / TRIALS_RECORD)
    rows = []
    for setting, trials_of_setting in records.groupby("setting", sort=False):
        scores = trials_of_setting.set_index("task").score
        rows.append([setting, *(scores.get(task) for task in METRICS)])
    return markdown_table(["", *(f"{task}, {metric}" for task, metric in METRICS.items())], rows)


def write_record(run):
    """Records the scores of each predictor on each file, by the recipe's tables."""
    rows = []
    for path in sorted((run / "tags").glob("*/results.tsv")):
        encoder = path.parent.name.partition("-")[0]
        if encoder == TRIALS:
            continue
        for row in scored_rows(path):
            if row.predictor == ENCODER:
                predictor, name = encoder, path.parent.name
            elif row.predictor == TAG_ENSEMBLE:
                predictor, name = f"{encoder}{WITH_CRF}", path.parent.name
            else:  # each run has the same baselines
                predictor, name = row.predictor, ""
            scores = [row.median, row.standard_error, row.lead, row.lead_standard_error]
            rows.append([row.task, predictor, name, row.file, *scores])
    columns = ["task", "predictor", "run", "file", "score", "error", "lead", "lead_error"]
    add_to_record(RECORD, rows, columns, num_keys=4)


def score_table():
    """The table of SMALL.md: predictors by files; encoders have means over their runs."""
    records = pd.read_csv(RECORDS / RECORD)
    rows = []
    records = records.sort_values("run", kind="stable", na_position="last")  # encoders come first
    for predictor, predictor_records in records.groupby("predictor", sort=False):
        scores = predictor_records.groupby(["task", "file"]).score.mean()
        runs = str(predictor_records.run.nunique() or "")  # baselines have none
        cells = [f"{scores[column]:.2f}" if column in scores else "" for column in SCORED_FILES]
        rows.append([title_of(predictor), runs, *cells])
    return markdown_table(["", "runs", *titles_of_files()], rows)


def lead_table():
    """The table of SMALL.md of leads over the CRF, with standard errors over sentences.

    Both are means over the runs of an encoder. Runs before there were leads have none.
    """
    records = pd.read_csv(RECORDS / RECORD).dropna(subset=["lead"])
    rows = []
    for predictor, predictor_records in records.groupby("predictor", sort=False):
        means = predictor_records.groupby(["task", "file"])[["lead", "lead_error"]].mean()
        cells = []
        for column in SCORED_FILES:
            cell = ""
            if column in means.index:
                cell = "{:+.2f} ± {:.2f}".format(*means.loc[column])
            cells.append(cell)
        rows.append([title_of(predictor), *cells])
    return markdown_table(["", *titles_of_files()], rows)


def titles_of_files():
    """The titles of the columns of SCORED_FILES."""
    return [f"{task}, {METRICS[task]}, {file.removesuffix('.txt')}" for task, file in SCORED_FILES]


def title_of(predictor):
    """The title of a predictor in the table."""
    encoder = predictor.removesuffix(WITH_CRF)
    if encoder not in VARIANT_TITLES:
        return predictor
    return VARIANT_TITLES[encoder] + predictor.removeprefix(encoder)


def main():
    parser = Parser("tags.py", description=__doc__)
    parser.add_argument("step", choices=["files", "record"])
    parser.add_argument("folder", nargs="?", type=Path, help="of the packages' archives")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models")
    args = parser.parse_args()
    if args.step == "record":
        write_record(args.run)
        write_trials(args.run)
    elif args.folder is None:
        raise UsageError("files: expected the folder of the archives")
    else:
        write_files(args.folder, args.run)


if __name__ == "__main__":
    run_main(main)
