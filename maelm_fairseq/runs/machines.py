"""The GPUs of a machine, and how several machines find each other before they train together."""

import argparse
import os
import socket
import subprocess
import time

from ..base.command_line import number_in_range
from ..base.errors import UsageError

# By which fairseq takes a process for one of several, whatever its options say.
DISTRIBUTED_VARIABLES = [
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_NODELIST",
]
SECONDS_TO_JOIN = 900  # that a machine waits for the others to be started


def rendezvous(args):
    """The settings by which the processes of several machines find each other."""
    try:
        port = number_in_range(1, 65534)(os.environ.get("MASTER_PORT", "29500"))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"MASTER_PORT: {error}") from None
    if "SLURM_STEP_ID" in os.environ:  # srun has started a task on each machine
        node_list = os.environ["SLURM_STEP_NODELIST"]
        names = subprocess.check_output(["scontrol", "show", "hostnames", node_list], text=True)
        address = names.split()[0]
        number = int(os.environ["SLURM_PROCID"])
    else:
        address = os.environ.get("MASTER_ADDR")
        if not address:
            raise UsageError(
                f"--nodes {args.nodes} needs MASTER_ADDR, the name of one of the machines"
            )
        number = 0 if args.dry_run else machine_number(address, port, args.nodes)
        # Training has a port of its own: on that of `machine_number`, an early machine would still
        # find the store there, and then lose it.
        port += 1
    network = dict(
        distributed_init_method=f"tcp://{address}:{port}",
        distributed_rank=number * max(args.gpus, 1),
    )
    if not args.gpus:
        network.update(
            distributed_backend="gloo", ddp_backend="legacy_ddp", distributed_no_spawn=True
        )
    return network


def machine_number(address, port, machines):
    """This machine's number: 0 at `address`; the others are numbered in the order they come.

    The processes of all machines look for each other at `address`.
    """
    from torch.distributed import DistNetworkError, TCPStore

    try:
        family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(
            f"MASTER_ADDR={address}: {error.strerror}; set it to one of the machines"
        ) from None
    deadline = time.monotonic() + SECONDS_TO_JOIN

    def wait(missing):
        """Waits here, not in the store, which would keep signals from this process."""
        if time.monotonic() > deadline:
            raise UsageError(
                f"--nodes {machines}: {missing} in {SECONDS_TO_JOIN} s; "
                "run the same command on each machine"
            )
        time.sleep(0.5)

    try:
        # This fails where it is not an address of this machine.
        socket.create_server(place[:2], family=family).close()
        store = TCPStore(address, port, is_master=True, wait_for_workers=False)
    except (OSError, DistNetworkError):  # the port is taken if all machines are one, for a test
        while socket.socket(family).connect_ex((address, port)):
            wait(f"nothing answered at {address}, port {port},")
        store = TCPStore(address, port, is_master=False)
        number = store.add("others", 1)
        # The first machine may then continue, and close the store: this needs no answer from it.
        store.set(str(number), "")
        return number
    others = [str(number) for number in range(1, machines)]
    while not store.check(others):
        wait("not all have joined")
    return 0


def count_gpus():
    """The number of GPUs that PyTorch sees. PyTorch is loaded now, as it takes seconds."""
    import torch

    return torch.cuda.device_count()


def take_gpus(count):
    """Limits this process to `count` GPUs; refuses more than PyTorch sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    # Without a GPU, fairseq trains on the CPU; on several machines, it uses all GPUs.
    if count != count_gpus():
        origin = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
        raise UsageError(
            f"--gpus {count}: PyTorch sees {count_gpus()} GPUs{origin}; --gpus 0 trains on the CPU"
        )
