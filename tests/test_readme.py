"""Commands, options, links and names in the README exist."""

import re
import shlex
import subprocess

from fairseq import options

from conftest import PLUGIN, ROOT, SCRIPTS_ENVIRONMENT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """Shell commands in the README's fenced blocks, continued lines joined."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M):
        if language:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            yield line.split("  #")[0].strip()


def starting_with(start):
    found = [line for line in commands() if line.startswith(start)]
    assert found, f"no {start} in README.md"
    return found


def shell(line, cwd=ROOT):
    """Runs a line in bash, with this environment's commands."""
    done = subprocess.run(
        ["bash", "-c", line], cwd=cwd, env={**SCRIPTS_ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_links_and_paths():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for path in re.findall(r"`((?:recipes|data-prep|experiments|maelm_fairseq|benchmarks|tests)/[\w./-]+)`", README):
        assert (ROOT / path).exists(), path


def test_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:^|`)make (\w+)", README, re.M)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_fairseq_commands_parse():
    for line in starting_with("fairseq-train "):
        arguments = shlex.split(re.sub(r'"\$\(.*?\)"', str(PLUGIN), line))[1:]
        args = options.parse_args_and_arch(options.get_training_parser(), arguments)
        assert (args.task, args.criterion, args.arch) == ("mae_lm", "mae_lm", "mae_lm_base")
    for line in starting_with("fairseq-validate "):
        arguments = shlex.split(line.replace("--user-dir maelm_fairseq", f"--user-dir {PLUGIN}"))[1:]
        assert options.parse_args_and_arch(options.get_validation_parser(), arguments).task == "mae_lm"


def test_the_folder_to_name_is_printed():
    (inner,) = re.findall(r'--user-dir "\$\((.*?)\)"', README)
    assert shell(inner).strip().splitlines()[-1] == str(PLUGIN)


def test_recipes_and_hydra_take_these_options(data):
    for line in starting_with("recipes/pretrain"):
        assert "--arch mae_lm_base" in shell(line.replace("--data data", f"--data {data}") + " --dry-run")
    for line in starting_with("fairseq-hydra-train "):
        printed = shell(line + " --cfg job")
        assert f"data: {ROOT}/data" in printed and "distributed_world_size: 8" in printed


def options_of(program):
    """The options that a program's --help lists, each at the start of a line."""
    listed = re.findall(r"^ +((?:-\w, )?--[\w-]+(?:, --[\w-]+)*)", shell(program + " --help"), re.M)
    return {option for options in listed for option in options.split(", ")}


def test_programs_take_these_options():
    lines = starting_with("data-prep/") + starting_with("recipes/finetune") + starting_with("experiments/reproduce")
    for line in lines + starting_with("python -m"):
        words = shlex.split(line)
        program = words[:3] if words[0] == "python" else words[:1]
        known = options_of(shlex.join(program))
        for word in words[len(program) :]:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, line
