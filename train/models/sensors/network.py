"""Define the network that corrects the experts' density, in the density's own coordinates.

z = Phi^-1(F(value)) is normal with mean 0 and deviation 1 where the experts' mixture F is right.
From features without units the network gives a mixture of C normals g of z, and so a density of the
value: f(value) g(z) / phi(z). Fresh weights give almost phi: no correction. Some of the normals
stand where values are likely that come exactly: the next steps of a sensor that quantises, and the
ends of its range (`features`).

Its memory is a running attention over L latents in each of H heads, as in constant-memory attention
blocks (Feng et al. 2023, section 3.2), whose sums forget:

    S <- gamma S + a (1, u(z))        a = softmax(K h), gamma by head: half-lives in rows
    read = sum_l a_l S_l / (n_l + N_PRIOR)

h encodes the features, u(z) are moments of z, n_l is the weight of the sum. So the memory keeps how
the experts have erred when the stream was as it is now.

Letters of shapes: B streams, T rows, F features, V values, W width, C normals.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgefold.train.models.sensors.features import E_ABS_Z, N_LIKELY

HALF_LIVES = (50.0, 500.0, 5000.0)
N_PRIOR = 3.0
N_MOMENTS = 4
Z_BOUND, FEATURE_BOUND = 4.0, 6.0
LOG_STD_BOUNDS = (-4.5, 2.5)
ROOT_HALF = 0.5**0.5
FIRST_STD = (0.1, 0.4, 0.8, 1.0, 2.0, *(0.05,) * N_LIKELY)
FIRST_SHARE = (0.01, 0.04, 0.1, 0.793, 0.05, *(0.001,) * N_LIKELY)
N_NORMALS = len(FIRST_STD)
"""Number C of normals; the last N_LIKELY have their means where the features say."""


@dataclass(frozen=True, slots=True)
class Normals:
    """Holds a density of z, the normal quantile of a value under the experts' density.

    The density is a mixture of C normals. Each attribute is a tensor (..., C): the means, the logs
    of the standard deviations, and the logs of the weights.
    """

    mean: Tensor
    log_std: Tensor
    log_weight: Tensor

    def gain(self, z: Tensor) -> Tensor:
        """Return the log density at z minus that of N(0, 1), in nats; both tensors are (..., 1)."""
        apart = (z - self.mean) * torch.exp(-self.log_std)
        logs = self.log_weight - self.log_std - 0.5 * apart**2
        return logs.logsumexp(-1, keepdim=True) + 0.5 * z**2

    def tails(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the masses of normals (B, C) below and above z (B, V), each (B, V)."""
        narrow = ROOT_HALF * torch.exp(-self.log_std)[..., None]
        apart = (z[:, None] - self.mean[..., None]) * narrow  # (B, C, V)
        half = ((0.5 * self.log_weight.exp())[:, None] @ torch.erf(apart))[:, 0]
        return 0.5 + half, 0.5 - half

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean, the logarithm of the deviation and the logarithm of the weight."""
        return self.mean, self.log_std, self.log_weight

    def packed(self) -> Tensor:
        """Join the three tensors of the normals into one, (..., 3 C)."""
        return torch.cat(self.parts, -1)

    @classmethod
    def unpacked(cls, packed: Tensor) -> Normals:
        """Return the normals that `packed` joined into one tensor, (..., 3 C)."""
        return cls(*packed.chunk(3, -1))


def neutral(n_streams: int) -> Normals:
    """Return normals whose density is nearly that of N(0, 1), tensors (B, C)."""
    mean = torch.zeros(n_streams, N_NORMALS)
    log_std, log_weight = torch.tensor(FIRST_STD).log(), torch.tensor(FIRST_SHARE).log()
    return Normals(mean, log_std.expand_as(mean), log_weight.expand_as(mean))


class Network(nn.Module):
    """Computes a density of z, as `Normals`, from features and from a memory of the stream.

    Args:
        n_features: F, the number of features.
        width: W, the width of the layers.
        n_heads: Number of heads of the memory, for each half-life.
        n_latents: L, the number of latents of a head.
    """

    feature_mean: Tensor
    feature_std: Tensor

    def __init__(self, n_features: int, width: int, n_heads: int, n_latents: int):
        super().__init__()
        self.n_heads, self.n_latents = n_heads * len(HALF_LIVES), n_latents
        n_read = self.n_heads * (N_MOMENTS - 1)
        self.encoder = nn.Sequential(
            nn.Linear(n_features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.key = nn.Linear(width, self.n_heads * n_latents)
        last = nn.Linear(width, 3 * N_NORMALS - N_LIKELY)
        self.head = nn.Sequential(nn.Linear(width + n_read, width), nn.SiLU(), last)
        self.register_buffer("feature_mean", torch.zeros(n_features))
        self.register_buffer("feature_std", torch.ones(n_features))
        with torch.no_grad():
            last.weight.zero_()
            first = neutral(1)
            last.bias.copy_(
                torch.cat([first.mean[0, N_LIKELY:], first.log_std[0], first.log_weight[0]])
            )

    def encode(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Encode features (..., F).

        Returns:
            The encoding (..., W), and the attention over latents (..., H, L).
        """
        scaled = (features - self.feature_mean) / self.feature_std
        encoded: Tensor = self.encoder(scaled.clamp(-FEATURE_BOUND, FEATURE_BOUND))
        return encoded, self.key(encoded).unflatten(-1, (self.n_heads, self.n_latents)).softmax(-1)

    def read(self, attention: Tensor, memory: Tensor) -> Tensor:
        """Return what each head reads of the memory, the means of three moments of z, (..., 3 H).

        The memory (..., H, L, 4) holds for each latent the weight of the rows that were added, then
        the sums of their three moments; `attention` (..., H, L) weighs the latents.
        """
        weight = attention / (memory[..., 0] + N_PRIOR)
        return (weight[..., None] * memory[..., 1:]).sum(-2).flatten(-2)

    def normals(self, encoded: Tensor, read: Tensor, features: Tensor) -> Normals:
        """Return the density of z.

        Args:
            encoded: Encoding of the features, (..., W).
            read: Result of the method `read`, (..., 3 H).
            features: Features, (..., F); the last N_LIKELY become the means of the last normals.
        """
        numbers = self.head(torch.cat([encoded, read], -1))
        sizes = [N_NORMALS - N_LIKELY, N_NORMALS, N_NORMALS]
        mean, log_std, log_weight = numbers.split(sizes, -1)
        mean = torch.cat([mean, features[..., -N_LIKELY:]], -1)
        return Normals(mean, log_std.clamp(*LOG_STD_BOUNDS), log_weight.log_softmax(-1))

    def fold(self, memory: Tensor, attention: Tensor, z: Tensor, counts: Tensor) -> Tensor:
        """Return the memory (B, H, L, 4) after z (B, 1), which is learned where counts (B, 1) is 1.

        The 4 numbers of a latent are running sums of the moments of z (see `moments_of`). They
        decay, then the moments of z are added, times the latent's attention (B, H, L).
        """
        counts = counts[..., None, None]
        keep = 1 - (1 - self.forgetting()[:, None, None]) * counts
        written = attention[..., None] * moments_of(z)[:, :, None]
        return keep * memory + counts * written

    def forgetting(self) -> Tensor:
        """Return gamma, the share that a head's memory keeps with each row, (H,)."""
        n_heads = self.n_heads // len(HALF_LIVES)
        factors = [0.5 ** (1 / rows) for rows in HALF_LIVES for _ in range(n_heads)]
        return self.feature_mean.new_tensor(factors)

    def follow(self, features: Tensor, z: Tensor, counts: Tensor, keep: Tensor) -> Normals:
        """Return the densities of all rows at once, as `fold` and `read` give them one by one.

        Args:
            features: Features of each row, computed from the rows before it, (T, B, F).
            z: Normal quantile z of each row's value, (T, B).
            counts: 1.0 where z is learned, else 0.0, (T, B).
            keep: 0.0 for streams whose memory is not read, else 1.0, (B, 1).
        """
        encoded, attention = self.encode(features)
        moments = moments_of(z[..., None])[..., 0, :] * counts[..., None]  # (T, B, 4)
        read = self._read_each(attention.permute(2, 0, 1, 3), moments)
        return self.normals(encoded, read * keep, features)

    def _read_each(self, attention: Tensor, moments: Tensor) -> Tensor:
        """Read the memory for each row by attention (H, T, B, L): return (T, B, 3 H).

        The memory holds the moments (T, B, 4) of earlier rows. It forgets with every row here, and
        in `fold` only with rows that are learned, which differs little.
        """
        n_streams, gamma = moments.shape[1], self.forgetting()[:, None, None]
        memory = moments.new_zeros(self.n_heads, 1, n_streams, self.n_latents, N_MOMENTS)
        chunks = []
        # Slices in the place of splits would each have a gradient of the size of the whole.
        for of, part in zip(attention.split(CHUNK, 1), moments.split(CHUNK), strict=True):
            n = len(part)
            written = of[..., None] * part[:, :, None]  # (H, n, B, L, 4)
            t = torch.arange(n + 1, device=part.device)
            lag = t[:, None] - t  # of what a row has written; the memory comes before them all
            decay = gamma ** torch.cat([t[:, None], lag[:, :-1] - 1], 1).clamp(min=0).float()
            decay = decay * torch.cat([part.new_ones(n + 1, 1), (lag[:, :-1] > 0).float()], 1)
            held = (decay @ torch.cat([memory, written], 1).flatten(2)).view(
                self.n_heads, n + 1, n_streams, self.n_latents, N_MOMENTS
            )
            now, memory = held.split([n, 1], 1)
            weight = of / (now[..., 0] + N_PRIOR)
            chunks.append((weight[..., None] * now[..., 1:]).sum(-2))  # (H, n, B, 3)
        return torch.cat(chunks, 1).permute(1, 2, 0, 3).flatten(2)


CHUNK = 50
"""Number of rows that `Network.follow` takes as one product."""


def moments_of(z: Tensor) -> Tensor:
    """Return what the memory sums up of z (..., 1): 1, z, z^2 - 1 and |z| - E|z|, (..., 1, 4)."""
    z = z.clamp(-Z_BOUND, Z_BOUND)
    moments = torch.cat([torch.ones_like(z), z, z**2, z.abs()], -1)
    moments = moments - torch.tensor([0.0, 0.0, 1.0, E_ABS_Z], device=z.device)
    return moments[..., None, :]
