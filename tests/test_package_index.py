"""data-prep/package_index.py: hostile packages in the place of the index; nothing of them may run or be unpacked."""

import hashlib
import io
import os
import sys
import tarfile
import zipfile

import pytest

from conftest import ROOT

PREP = ROOT / "data-prep"
sys.path.insert(0, str(PREP))

import command_line  # noqa: E402
import movie_reviews  # noqa: E402
import package_index  # noqa: E402
import substitute_datasets  # noqa: E402

PINNED = """
import os, runpy, sys
folder, archives, program = sys.argv[1:4]
del sys.argv[:3]
sys.path.insert(0, folder)
import package_index
package_index.ARCHIVES = eval(archives)
sys.argv[0] = os.path.join(folder, program)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def pins(archives):
    """What package_index.ARCHIVES would contain for these archives: {package: path}."""
    return {package: (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for package, path in archives.items()}


def pinned(program, archives, *options):
    """The command of a program of data-prep/ that fetches these archives: {package: path}."""
    return [sys.executable, "-c", PINNED, str(PREP), repr(pins(archives)), program, *map(str, options)]


def source_archive(path, members):
    """Writes a gzipped source archive with text files and other TarInfo objects."""
    with tarfile.open(str(path), "w:gz") as archive:
        for name, member in members.items():
            entry = tarfile.TarInfo(name) if isinstance(member, str) else member
            data = member.encode() if isinstance(member, str) else b""
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that takes the place of the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    (tmp_path / "download").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("MARKER", str(tmp_path / "marker"))
    return folder


RUNS = "import os; open(os.environ['MARKER'], 'w')\n"
SETUP = RUNS + "from setuptools import setup; setup(name='hostile', version='1.0')\n"
BACKEND = RUNS + "def prepare_metadata_for_build_wheel(*_): pass\nbuild_wheel = get_requires_for_build_wheel = None\n"
PROJECT = '[build-system]\nrequires = ["nothing"]\nbuild-backend = "{}"\n'
SOURCES = {
    "setup.py alone": {"setup.py": SETUP},
    "pyproject.toml": {"setup.py": SETUP, "pyproject.toml": PROJECT.format("setuptools.build_meta")},
    "legacy": {"setup.py": SETUP, "pyproject.toml": PROJECT.format("setuptools.build_meta:__legacy__")},
}


def hostile(index, sources):
    members = {"hostile-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n"}
    members.update({f"hostile-1.0/{name}": text for name, text in sources.items()})
    return source_archive(index / "hostile-1.0.tar.gz", {**members, "hostile-1.0/data.txt": "text"})


@pytest.mark.parametrize("sources", SOURCES)
def test_nothing_in_a_source_archive_runs(index, tmp_path, monkeypatch, sources):
    path = hostile(index, SOURCES[sources])
    monkeypatch.setattr(package_index, "ARCHIVES", pins({"hostile==1.0": path}))
    archive = package_index.fetch("hostile==1.0", str(tmp_path / "download"))
    assert package_index.read_member(archive, "hostile-1.0/data.txt") == b"text"
    assert not (tmp_path / "marker").exists()


def test_another_source_archive_is_refused_before_anything_of_it_runs(index, tmp_path, monkeypatch):
    own_backend = PROJECT.format("backend") + 'backend-path = ["."]\n'
    path = hostile(index, {"pyproject.toml": own_backend, "backend.py": BACKEND})
    monkeypatch.setattr(package_index, "ARCHIVES", {"hostile==1.0": (path.name, "0" * 64)})
    with pytest.raises(
        command_line.InputError, match="has another file than hostile-1.0.tar.gz with SHA-256 000"
    ) as error:
        package_index.fetch("hostile==1.0", str(tmp_path / "download"))
    assert "\n" not in str(error.value) and not (tmp_path / "marker").exists()


def test_another_wheel_or_a_source_archive_in_its_place_is_refused(index, tmp_path, monkeypatch):
    name = "hostile-1.0-py3-none-any.whl"
    monkeypatch.setattr(package_index, "ARCHIVES", {"hostile==1.0": (name, "0" * 64)})
    hostile(index, {"setup.py": SETUP})
    with pytest.raises(command_line.InputError, match="pip could not download hostile==1.0"):
        package_index.fetch("hostile==1.0", str(tmp_path / "download"))
    with zipfile.ZipFile(str(index / name), "w") as wheel:
        wheel.writestr("hostile-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
        wheel.writestr("hostile-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    with pytest.raises(command_line.InputError, match=f"has another file than {name}"):
        package_index.fetch("hostile==1.0", str(tmp_path / "download"))
    assert not (tmp_path / "marker").exists()


def link(kind, target):
    entry = tarfile.TarInfo()
    entry.type, entry.linkname = kind, target
    return entry


def test_members_are_only_read(tmp_path):
    """Names that lead out of the archive are nothing but names, and links are not followed."""
    before = set(os.listdir(str(tmp_path.parent)))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    links = {"symbolic": link(tarfile.SYMTYPE, str(secret)), "hard": link(tarfile.LNKTYPE, str(secret))}
    links.update(folder=link(tarfile.DIRTYPE, ""), pipe=link(tarfile.FIFOTYPE, ""), device=link(tarfile.CHRTYPE, ""))
    for name, entry in links.items():
        entry.name = name
    names = {"../outside": "a", "/absolute": "b", "folder/../../outside": "c"}
    archive = str(source_archive(tmp_path / "a.tar.gz", {**names, **links}))
    wheel = str(tmp_path / "a.whl")
    with zipfile.ZipFile(wheel, "w") as files:
        for name, text in names.items():
            files.writestr(name, text)
    for name, text in names.items():
        assert package_index.read_member(archive, name) == package_index.read_member(wheel, name) == text.encode()
    for name in [*links, "missing"]:
        with pytest.raises(command_line.InputError, match=f"contains no file {name}"):
            package_index.read_member(archive, name)
    assert set(os.listdir(str(tmp_path.parent))) == before
    assert set(os.listdir(str(tmp_path))) == {"secret", "a.tar.gz", "a.whl"}


@pytest.mark.parametrize("name", ["a.tar.gz", "a.whl"])
def test_damaged_archives_are_one_error(tmp_path, name):
    path = source_archive(tmp_path / "a.tar.gz", {"file": "text" * 10000})
    with zipfile.ZipFile(str(tmp_path / "a.whl"), "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("file", os.urandom(10000).hex())
    path = tmp_path / name
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in [b"", b"text", content[:middle], content[:middle] + b"\xff" * 20 + content[middle + 20 :]]:
        path.write_bytes(damaged)
        with pytest.raises(command_line.InputError, match="is damaged") as error:
            package_index.read_member(str(path), "file")
        assert "\n" not in str(error.value)


def test_all_packages_are_pinned():
    used = {movie_reviews.PACKAGE, *substitute_datasets.PACKAGES.values()}
    assert used == set(package_index.ARCHIVES)
    for package, (archive, sha256) in package_index.ARCHIVES.items():
        name, version = package.split("==")
        assert archive.startswith(f"{name.replace('-', '_')}-{version}")
        assert len(sha256) == 64 and int(sha256, 16)
