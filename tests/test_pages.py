"""README.md and docs/: their code runs, their links lead somewhere, and what they name exists.

Code is run as it stands, except for sizes, one page after another. It runs in a folder that looks
like a clone of the repository with a user's files in it.
"""

import gzip
import re
import shlex
import shutil

import pytest

import labelled
from conftest import ROOT, TINY, TRANSFORMERS, documents, script, succeed, text_of
from huggingface_cases import byte_level_roberta

PARTS = ["maelm_fairseq", "data-prep", "recipes", "experiments", "benchmarks", "docs", "tests"]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
MODEL = (
    "--arch mae_lm_tiny --encoder-layers 2 --decoder-layers 1 "
    "--encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2 "
    "--max-positions 64 --tokens-per-sample 32 --max-update 2 --num-workers 0"
)
# Patterns and replacements that make commands take seconds.
SMALLER = [
    (r"--vocab-size \d+", "--vocab-size 100"),
    (r"--valid-documents \d+", "--valid-documents 10"),
    (
        r"(recipes/pretrain.*) --gpus 8",
        rf"\1 --gpus 0 --batch-size 8 --update-freq 1 {MODEL}",
    ),
    (r"(recipes/pretrain_small.*) --updates \d+", r"\1"),
    (
        r"(recipes/pretrain_small(?!.*--max-update).*)",
        r"\1 --max-update 2000",
    ),
    (
        r"(recipes/pretrain_small.*)--max-update (\d)\d?00",
        rf"\1 --batch-size 8 --update-freq 1 {MODEL} --max-update \2",
    ),
    (
        r"(fairseq-train .*)--arch mae_lm_base(.*)--fp16(.*)--max-update 125000",
        rf"\1\2--cpu\3 {MODEL}",
    ),
    (
        r"(fairseq-hydra-train .*)=8 .*",
        r"\1=1 common.cpu=true common.fp16=false optimization.max_update=1"
        r" dataset.batch_size=1 model._name=mae_lm_tiny",
    ),
    (r"(recipes/finetune.*)", r"\1 --seeds 1 --epochs 1"),
    (r"(fairseq-train .*--labelled.*)", r"\1 --max-update 2 --cpu"),
    (
        r"(recipes/evaluate\.sh(?!.* --(tasks|pairs)).*)",
        r"\1 --labelled glue_data --tasks my_task",
    ),
    (r"(recipes/evaluate\.sh.*)", r"\1 --few-shot-repeats 0"),
    (
        r"(recipes/adapt\.sh.*)",
        r"\1 --gpus 0 --updates 2 --tokens-per-sample 32",
    ),
]
# Commands that SMALLER must change: as they stand, they take hours.
LONG = re.compile(r"(recipes/(pretrain|finetune|evaluate|adapt)|fairseq-(hydra-)?train )")
# Commands that install, download or take hours: only their options and targets are looked up.
NOT_RUN = re.compile(r"pip |make |\. |git clone|mv blimp_|data-prep/(movie_reviews|fetch_labelled)")


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page):
    """The code of a page: pairs of the language, "" for shell commands, and the text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", read(page), re.S | re.M)


def shell(line, cwd):
    """Runs a line in bash, with this environment's commands; returns what it printed."""
    return script(shutil.which("bash"), "-c", line, cwd=cwd).stdout


def look_up(words, cwd):
    """Checks the options, the extra or the target of a command without running it."""
    if words[0] == ".":
        assert words[1] == ".venv/bin/activate"
    elif words[0] in ("git", "mv"):  # of BLiMP
        if words[:2] != ["git", "clone"]:
            assert (cwd / words[-1]).exists()
    elif words[0] == "make":
        folder = ROOT / words[2] if words[1] == "-C" else ROOT
        assert re.search(rf"^{words[-1]}:", (folder / "Makefile").read_text(), re.M)
    elif words[0] == "pip":
        assert words[1:5] in (
            ["uninstall", "--yes", "torchaudio"],
            ["install", "-c", "constraints.txt", "-e"],
        )
        for extra in re.findall(r"\w+", "".join(words[5:])):
            assert f'"{extra}": [' in read("setup.py")
    else:
        options = {word for word in words if word.startswith("--")}
        assert options <= set(re.findall(r"--[\w-]+", shell(words[0] + " --help", cwd)))


def smaller(code):
    for pattern, replacement in SMALLER:
        code = re.sub(pattern, replacement, code)
    return code


def run_page(page, place, ran):
    """Runs the code of a page, except for commands in the set `ran`, and adds its own to them."""
    for language, code in blocks(page):
        if language == "python":
            shell(f"python -c {shlex.quote(code)}", place)
        elif language == "py":  # needs transformers
            for python in TRANSFORMERS[-1:]:
                shell(f"{python} -c {shlex.quote(smaller(code))}", place)
        elif not language:
            for line in code.replace("\\\n", " ").splitlines():
                run_line(line.split("  #")[0].strip(), place, ran)


def run_line(line, place, ran):
    """Runs a command of a page, or looks it up."""
    if NOT_RUN.match(line):
        look_up(shlex.split(line), place)
        return
    assert smaller(line) != line or not LONG.match(line), line
    words = " ".join(line.split())
    # Each page exports anew, into a folder that has been removed.
    if words not in ran or "huggingface.export" in words:
        shell(smaller(line), place)
    ran.add(words)


@pytest.fixture(scope="module")
def ran():
    """The commands that other pages ran."""
    return set()


@pytest.fixture(scope="module")
def place(tmp_path_factory, ran):
    """A folder with parts of the repository and a user's files, after following the README."""
    place = tmp_path_factory.mktemp("place") / "maelm_fairseq"
    place.mkdir()
    for part in PARTS:
        (place / part).symlink_to(ROOT / part)
    for folder in ["corpus", "text", "pages"]:
        (place / folder).mkdir()
    write_texts(place)
    write_labelled(place)
    for name in ["a.pt", "b.pt"]:
        (place / name).symlink_to("checkpoints/checkpoint_best.pt")
    roberta_base, _, _ = byte_level_roberta(place / "byte_level", documents(40, 3)[0])
    roberta_base.rename(place / "roberta-base")
    run_page("README.md", place, ran)
    return place


def write_texts(place):
    names = ["corpus/a.txt", "text/train.txt", "text/valid.txt"]
    names += ["train.txt", "valid.txt", "text.txt"]
    for seed, name in enumerate(names):
        (place / name).write_text(text_of(documents(100, seed)))
    for number in range(12):
        (place / f"pages/{number}.txt").write_text(text_of(documents(9, number)))
    packed = gzip.compress((place / "train.txt").read_bytes())
    (place / "corpus/b.txt.gz").write_bytes(packed)


def write_labelled(place):
    (place / "minimal_pairs.tsv").write_text("good\tbad\nkan lo\tlo kan\n")
    (place / "new_pairs.txt").write_text("kan lo\tlo kan\n")
    (place / "new_texts.txt").write_text("kan lo\n")
    labelled.blimp(place / "blimp")
    (place / "questions").mkdir()
    rows = [f"{label}\twhat is {label} {number} ?" for label in "abc" for number in range(9)]
    (place / "questions.tsv").write_text("\n".join(["label\tsentence", *rows]) + "\n")
    labelled.pairs(place / "glue_data/RTE", score=False)
    for task in ["glue_data/my_task", "substitutes/trec"]:
        labelled.sentences(place / task)
    labelled.tags(place / "tagged")
    labelled.squad(place / "squad2", train=20)


@pytest.fixture
def roberta(place):
    """A Hugging Face encoder with its SentencePiece model, under the name that the pages use."""
    options = ["--encoder-mask-fraction", 1, "--decoder-layers", 0]
    options += ["--relative-position-num-buckets", 0, "--save-dir", place / "mlm"]
    succeed("fairseq-train", place / "data", *TINY, *options)
    encoder = place / "xlm-roberta-base"
    export = "python -m maelm_fairseq.huggingface.export --checkpoint mlm --data data"
    shell(f"{export} --dest {encoder}", place)
    shutil.copy(place / "data/sentencepiece.model", encoder / "sentencepiece.bpe.model")


@pytest.mark.parametrize("page", PAGES[1:])
def test_a_page_can_be_followed(page, place, ran, request):
    if "xlm-roberta-base" in (ROOT / page).read_text():
        request.getfixturevalue("roberta")
    shutil.rmtree(place / "encoder", ignore_errors=True)
    run_page(page, place, ran)


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    paths = [*ROOT.glob("*.md")]
    for folder in ["benchmarks", "docs", "experiments", "maelm_fairseq", "tests"]:
        paths += (ROOT / folder).rglob("*.md")
    for page in [path.relative_to(ROOT) for path in paths]:
        text = re.sub(r"`[^`\n]*`", "", read(page))
        for link in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            if not link.startswith("https://") and "$" not in link:
                assert target.exists(), f"{page}: {link}"
            if anchor:
                assert anchor in anchors(target), f"{page}: {link}"


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_paths_exist(page):
    for path in re.findall(rf"`((?:{'|'.join(PARTS)})/[\w./-]+)`", read(page)):
        assert (ROOT / path).exists(), path


def test_pages_name_code_that_exists():
    definitions = [*definitions_of_architecture(), *definitions_of_contributing()]
    assert len(definitions) > 30
    for name, path in definitions:
        code = read(path)
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b|^{part} = ", code, re.M), (name, path)


def definitions_of_architecture():
    """Names and files of "`name` and `name` in [file](path)"."""
    pattern = r"((?:`[\w.]+`(?:, | and )?)+) in \[[^]]*\]\(([^)]+\.py)\)"
    for names, path in re.findall(pattern, read("docs/architecture.md")):
        for name in re.findall(r"[\w.]+(?=`)", names):
            yield name, f"docs/{path}"


def definitions_of_contributing():
    """Names and files of "`path` (`name`)"."""
    for path, name in re.findall(r"`([\w/-]+/[\w.-]+\.py)` \(`(\w+)[`(.]", read("CONTRIBUTING.md")):
        yield name, path


def test_the_readme_is_one_page():
    assert len(read("README.md").splitlines()) <= 120
