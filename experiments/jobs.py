"""Jobs that depend on each other, several at a time; each is done again when what it was made from has changed.

A job's record, `records/KIND/SUBJECT.json`, is written when the job begins and again when it ends. It says what the job
is made from: the SHA-256 of its inputs, its options, and the version of the code. A job is done if its record says that
it finished and matches what the job would be made from now. A job that began with the same record resumes; otherwise
its old files are removed first. The files of a job that takes hours are never removed: the user decides.
"""

import concurrent.futures
import contextlib
import functools
import os
import shutil
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

from child_processes import stop_all
from made_from import differences
from maelm_fairseq import __version__
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import read_json, save_json, sha256

DONE, TO_DO, AGAIN = "done", "to do", "to do again"


@dataclass
class Job:
    """A piece of work.

    Args:
        kind: such as "ranks"
        subject: the names of its run and its task, or fewer
        action: function that does the job
        output: the file that it writes last
        leaves: all files and folders that it writes, except logs
        inputs: function that returns {title: path} of the files that it reads; called when all of `needs` are done
        options: function that returns its options without folders, a list of strings; called when `needs` are done
        needs: names of the jobs that make its inputs or determine its options
        after: names of other jobs to wait for
        logs: log files to remove with `leaves`
        precious: whether it takes too long to be done again without asking
    """

    kind: str
    subject: Tuple[str, ...]
    action: Callable[[], None]
    output: str
    leaves: List[str]
    inputs: Callable[[], Dict[str, str]] = dict
    options: Callable[[], List[str]] = list
    needs: List[str] = field(default_factory=list)
    after: List[str] = field(default_factory=list)
    logs: List[str] = field(default_factory=list)
    precious: bool = False

    @property
    def name(self):
        return " ".join([self.kind, *self.subject])

    def made_from(self):
        """What the job would be made from now."""
        inputs = {title: digest(path) for title, path in self.inputs().items()}
        return dict(version=__version__, options=self.options(), inputs=inputs)

    def has_left_something(self):
        return any(os.path.isfile(path) or os.path.isdir(path) and os.listdir(path) for path in self.leaves)


@dataclass
class State:
    """Where a job stands.

    Args:
        status: DONE, TO_DO or AGAIN
        reason: why it is to be done again
        cause: name of the job that it is done again for; empty if that is itself
    """

    status: str
    reason: str = ""
    cause: str = ""


def digest(path):
    """The SHA-256 of a file; None if there is none."""
    if not os.path.isfile(path):
        return None
    status = os.stat(path)
    return _digest(path, status.st_mtime_ns, status.st_size, status.st_ino)


@functools.lru_cache(maxsize=None)
def _digest(path, *_):
    return sha256(path)


def remove(path):
    """Removes a file or a folder, if it exists."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def flat(made_from):
    """What a job was made from, as {title: value}; each option with its values."""
    found, name = {"version of the code": made_from["version"]}, "options"
    for part in made_from["options"]:
        name = part if part.startswith("--") else name
        found.setdefault(name, []).append(part)
    return {**found, **{f"input {title}": value for title, value in made_from["inputs"].items()}}


class Jobs:
    """Jobs of one folder.

    Args:
        jobs: list of :class:`Job` by priority, each after those that it needs
        folder: where the records are
    """

    def __init__(self, jobs, folder):
        self.jobs, self.folder = jobs, folder

    def record_path(self, job):
        return os.path.join(self.folder, job.kind.replace(" ", "-"), *job.subject) + ".json"

    def record(self, job):
        """What a job's record says: dict of made_from and finished; None if there is none."""
        path = self.record_path(job)
        if not os.path.exists(path):
            return None
        record = read_json(path, "the record of a job")
        try:
            return dict(finished=record["finished"], made_from=flat(record["made_from"]))
        except (TypeError, KeyError):
            raise UsageError(f"{path}: not the record of a job; remove it and run again") from None

    def states(self):
        """{name of a job: its :class:`State`}"""
        found = {}
        for job in self.jobs:
            found[job.name] = self.state(job, {need: found[need] for need in job.needs})
        return found

    def state(self, job, needed):
        """The state of a job, given those of the jobs that it needs: dict of :class:`State`."""
        record = self.record(job)
        if not job.has_left_something():
            return State(TO_DO)
        if record is None:
            return State(AGAIN, "there is no record of what it was made from")
        for need, state in needed.items():
            if state.status == AGAIN:
                reason = state.reason if state.cause else f"`{need}` is to be done again: {state.reason}"
                return State(AGAIN, reason, state.cause or need)
        if any(state.status != DONE for state in needed.values()):
            return State(TO_DO)
        different = differences(record["made_from"], flat(job.made_from()))
        if different:
            return State(AGAIN, "other " + ", ".join(different))
        return State(DONE if record["finished"] and os.path.exists(job.output) else TO_DO)

    def refuse_to_lose(self, states):
        """Raises a UsageError if a job that takes hours would have to be done again."""
        for job in self.jobs:
            state = states.get(job.name)
            if job.precious and state and state.status == AGAIN:
                raise UsageError(
                    f"{os.path.dirname(job.output)}: `{job.name}` would have to be done again: {state.reason}. That "
                    "takes long: undo the change, choose another --dest, or remove this folder to do it again"
                )

    def perform(self, job):
        """Does a job whose needs are done, unless it is up to date; returns whether it did."""
        state = self.state(job, {})
        if state.status == DONE:
            return False
        self.refuse_to_lose({job.name: state})
        made_from = job.made_from()
        if self.record(job) is None or state.status == AGAIN or not job.has_left_something():
            remove(self.record_path(job))
            for path in [*job.leaves, *job.logs]:
                remove(path)
        os.makedirs(os.path.dirname(self.record_path(job)), exist_ok=True)
        save_json(dict(finished=False, made_from=made_from), self.record_path(job))
        job.action()
        save_json(dict(finished=True, made_from=made_from), self.record_path(job))
        return True

    def show(self, states):
        """Prints which jobs are done, which are to do, and which are to do again and why."""
        print(f"{sum(state.status == DONE for state in states.values())} of {len(self.jobs)} jobs are done")
        for kind in dict.fromkeys(job.kind for job in self.jobs):
            jobs = [job for job in self.jobs if job.kind == kind]
            by_status = {status: [job for job in jobs if states[job.name].status == status] for status in (DONE, TO_DO)}
            to_do = ", ".join(" ".join(job.subject) or job.kind for job in by_status[TO_DO]) or "nothing"
            print(f"  {kind}: {len(by_status[DONE])} done; to do: {to_do}")
            by_reason = {}
            for job in jobs:
                if states[job.name].status == AGAIN:
                    by_reason.setdefault(states[job.name].reason, []).append(" ".join(job.subject) or job.kind)
            for reason, names in by_reason.items():
                print(f"    to do again: {', '.join(names)}: {reason}")

    def run(self, states, at_a_time):
        """Does all jobs that are not done.

        Args:
            states: what :meth:`states` gave
            at_a_time: number of jobs that run at the same time
        Raises:
            UsageError: a job failed, or one that takes hours would have to be done again
        """
        self.refuse_to_lose(states)
        left = [job for job in self.jobs if states[job.name].status != DONE]
        running, begun = {}, {}
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            try:
                while left or running:
                    waiting_for = {job.name for job in [*left, *running.values()]}
                    free = [job for job in left if not waiting_for & {*job.needs, *job.after}]
                    for job in free[: at_a_time - len(running)]:
                        left.remove(job)
                        running[pool.submit(self.perform, job)], begun[job.name] = job, time.time()
                    finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in finished:
                        job = running.pop(future)
                        did = future.result()
                        seconds = round(time.time() - begun[job.name])
                        count = len(self.jobs) - len(left) - len(running)
                        took = f"{seconds // 60}:{seconds % 60:02d}" if did else "unchanged"
                        print(f"[{count} of {len(self.jobs)}] {job.name}  ({took})", flush=True)
            except BaseException:
                stop_all()
                raise
