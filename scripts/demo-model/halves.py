"""Two processes that compute the gradients of halves of a batch: on a machine that others use they get twice the time of one."""

import multiprocessing
import os

import torch


class Halves:
    """compute(rank) returns a loss, with its graph, and a tensor of numbers to watch.
    Parameters move to shared memory; step() leaves the mean gradient in .grad."""

    def __init__(self, parameters, compute, count=2, watched=4):
        self.parameters, self.compute, self.count = list(parameters), compute, count
        for p in self.parameters:
            p.data = p.data.share_memory_()
        self.sizes = [p.numel() for p in self.parameters]
        self.grads = torch.zeros(count, sum(self.sizes)).share_memory_()
        self.seen = torch.zeros(count, watched).share_memory_()
        context = multiprocessing.get_context("fork")
        self.begin = [context.Semaphore(0) for _ in range(count)]
        self.end = context.Semaphore(0)
        self.others = [context.Process(target=self.work, args=(i,), daemon=True) for i in range(1, count)]
        for p in self.others:
            p.start()

    def one(self, rank):
        loss, seen = self.compute(rank)
        grads = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        torch.cat([torch.zeros(n) if g is None else g.flatten() for g, n in zip(grads, self.sizes)], out=self.grads[rank])
        self.seen[rank] = seen

    def work(self, rank):
        parent = os.getppid()
        while os.getppid() == parent:
            if self.begin[rank].acquire(timeout=60):
                self.one(rank)
                self.end.release()

    def step(self):
        for s in self.begin[1:]:
            s.release()
        self.one(0)
        for _ in self.others:
            if not self.end.acquire(timeout=300):
                raise TimeoutError("the other half does not answer")
        for p, g in zip(self.parameters, self.grads.mean(0).split(self.sizes)):
            p.grad = g.view_as(p)
        return self.seen.mean(0)
