"""Muon for matrices and Adam for the rest, in float32."""

import torch


def orthogonal(g):
    """Newton-Schulz iteration towards the nearest matrix with orthogonal rows (Jordan et al., Muon, 2024)."""
    x = g / (g.norm() + 1e-7)
    flip = x.shape[0] > x.shape[1]
    if flip:
        x = x.t()
    for _ in range(5):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.t() if flip else x


class Muon:
    """matrices and others are lists of parameters; rates are of a whole step."""

    def __init__(self, matrices, others, matrix_rate=0.02, rate=0.002, beta2=0.98):
        self.matrices, self.others = list(matrices), list(others)
        self.matrix_rate, self.rate, self.beta2, self.steps = matrix_rate, rate, beta2, 0
        self.state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in self.matrices + self.others}

    @torch.no_grad()
    def step(self, scale):
        self.steps += 1
        for p in self.matrices:
            m, g = self.state[p][0], p.grad.flatten(1)
            m = m.flatten(1)
            m.mul_(0.95).add_(g)
            u = orthogonal(g + 0.95 * m).view_as(p)
            p.mul_(1 - 0.01 * self.matrix_rate * scale)
            p.add_(u, alpha=-self.matrix_rate * scale * max(1, g.shape[0] / g.shape[1]) ** 0.5)
        for p in self.others:
            m, v = self.state[p]
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(self.beta2).addcmul_(p.grad, p.grad, value=1 - self.beta2)
            mh, vh = m / (1 - 0.9**self.steps), v / (1 - self.beta2**self.steps)
            p.addcdiv_(mh, vh.sqrt() + 1e-8, value=-self.rate * scale)
        for p in self.state:
            p.grad = None
