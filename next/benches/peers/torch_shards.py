"""Reductions over several GPUs in PyTorch, as users write them: a local reduction, then NCCL.

    python3 torch_shards.py [ELEMENTS_IN_ALL]

Starts a process for each GPU and prints lines such as
`TORCH sum f32 [4294967296] on 2: 1900.0 us 9041 GB/s`: microseconds per call in a stream of
back-to-back calls, median of 9 samples, and the bandwidth of all GPUs together.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def total(x, start, dim):
    y = x.sum(dim)
    dist.all_reduce(y)
    return y


def largest(x, start, dim):
    y = x.amax(dim)
    dist.all_reduce(y, dist.ReduceOp.MAX)
    return y


def position(x, start, dim):
    value, index = x.max(dim)
    index = index + start
    world = dist.get_world_size()
    values = value.new_empty((world, *value.shape))
    indices = index.new_empty((world, *index.shape))
    dist.all_gather_into_tensor(values, value)
    dist.all_gather_into_tensor(indices, index)
    return indices.gather(0, values.argmax(0, keepdim=True)).squeeze(0)


def mean_and_variance(x, start, dim):
    var, mean = torch.var_mean(x, dim, correction=0)
    own = torch.stack([torch.full_like(mean, x.shape[dim]), mean, var * x.shape[dim]])
    world = dist.get_world_size()
    every = own.new_empty((world, *own.shape))
    dist.all_gather_into_tensor(every, own)
    counts, means, squares = every[:, 0], every[:, 1], every[:, 2]
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / count


def logsumexp(x, start, dim):
    own = torch.logsumexp(x, dim)
    every = own.new_empty((dist.get_world_size(), *own.shape))
    dist.all_gather_into_tensor(every, own)
    return torch.logsumexp(every, 0)


CASES = [
    ("sum", total),
    ("max", largest),
    ("argmax", position),
    ("mean_var", mean_and_variance),
    ("logsumexp", logsumexp),
]


def run(rank, world, elements):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    own = elements // world
    for shape in [(own,), (own // 1024, 1024)]:
        x = torch.rand(shape, device="cuda")
        for name, call in CASES:
            try:
                sample(call, x, rank * shape[0], 2)
                calls = max(2, int(0.05 / sample(call, x, rank * shape[0], 2)))
                calls = torch.tensor([calls], device="cuda")
                dist.broadcast(calls, 0)
                seconds = [sample(call, x, rank * shape[0], int(calls)) for _ in range(9)]
            except torch.OutOfMemoryError:
                if rank == 0:
                    print(f"SKIPPED {name} {shape}: out of memory", flush=True)
                continue
            if rank == 0:
                us = statistics.median(seconds) * 1e6
                whole = [shape[0] * world, *shape[1:]]
                rate = elements * 4 / us / 1e3
                case = f"{name} f32 {whole} axis 0 on {world}"
                print(f"TORCH {case}: {us:.1f} us {rate:.0f} GB/s", flush=True)
        del x
        torch.cuda.empty_cache()
    dist.destroy_process_group()


def sample(call, x, start, calls):
    """Seconds per call until the last GPU has finished."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call(x, start, 0)
    torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begin], device="cuda")
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item() / calls


if __name__ == "__main__":
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 32
    for world in sorted({1, torch.cuda.device_count()}):
        mp.spawn(run, args=(world, elements), nprocs=world)
