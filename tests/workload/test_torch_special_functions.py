"""PyTorch's special functions as series, against SciPy in float64 and eager PyTorch in float32."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from foretune.graph import compile_model, extract, verify
from foretune.workload import from_object

torch = pytest.importorskip("torch")

from foretune.workload.importers.torch._special_functions import (  # noqa: E402
    polygamma,
    special_rules,
)

EDGES = [0.0, 1e-6, 1e-3, 1.999, 2.0, 2.001, 7.999, 8.0, 8.001, 100.0, 1e4, np.inf, np.nan]
POSITIVE = np.concatenate([np.linspace(1e-3, 30, 997), EDGES])
WHOLE = np.concatenate([POSITIVE, -POSITIVE])
FUNCTIONS = {
    "i0": (special.i0, WHOLE),
    "special_i0e": (special.i0e, WHOLE),
    "special_i1": (special.i1, WHOLE),
    "special_i1e": (special.i1e, WHOLE),
    "special_modified_bessel_k0": (special.k0, POSITIVE),
    "special_modified_bessel_k1": (special.k1, POSITIVE),
    "special_scaled_modified_bessel_k0": (special.k0e, POSITIVE),
    "special_scaled_modified_bessel_k1": (special.k1e, POSITIVE),
    "special_bessel_j0": (special.j0, WHOLE),
    "special_bessel_j1": (special.j1, WHOLE),
    "special_bessel_y0": (special.y0, POSITIVE),
    "special_bessel_y1": (special.y1, POSITIVE),
    "special_spherical_bessel_j0": (lambda x: special.spherical_jn(0, x), WHOLE),
    "special_erfcx": (special.erfcx, WHOLE),
    "special_log_ndtr": (special.log_ndtr, WHOLE),
    "special_ndtri": (special.ndtri, np.linspace(-0.01, 1.01, 1021)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_series_are_scipys_functions(name):
    function, x = FUNCTIONS[name]
    rule = special_rules()[getattr(torch.ops.aten, name).default]
    actual, expected = rule(torch.from_numpy(x)).numpy(), function(x)
    finite = np.isfinite(expected)
    # At infinity some are exp(inf) * 0, for PyTorch as here.
    eager = getattr(torch.ops.aten, name)(torch.from_numpy(x)).numpy()
    known = np.isfinite(eager)
    assert np.isfinite(actual[finite & known]).all()
    apart = np.abs(actual[finite & known] - expected[finite & known])
    # Near their zeros, oscillating functions have the error of their neighbourhood.
    np.testing.assert_array_less(apart, 1e-10 * np.maximum(np.abs(expected[finite & known]), 1e-2))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_derivatives_of_digamma_are_scipys_and_reflected_left_of_a_half(n):
    x = np.linspace(0.05, 20, 400)
    np.testing.assert_allclose(
        polygamma(n, torch.from_numpy(x)).numpy(), special.polygamma(n, x), rtol=1e-11
    )
    # psi_n(x + 1) = psi_n(x) + (-1)^n n! x^(-n-1), left of zero as well.
    left = torch.linspace(-5.9, -0.1, 41, dtype=torch.float64)
    left = left[(left - left.round()).abs() > 0.05]
    step = (-1.0) ** n * special.factorial(n) * left ** -(n + 1.0)
    np.testing.assert_allclose(
        polygamma(n, left + 1).numpy(), (polygamma(n, left) + step).numpy(), rtol=1e-7, atol=1e-7
    )


class _Of(torch.nn.Module):
    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *given):
        return [function(*given) for function in self.functions]


def check(hardware, functions, *given):
    model = from_object((_Of(functions), given), "special")
    result = verify(compile_model(model, hardware, {}, extract(model, hardware)), model)
    assert result.ok, result.message


@pytest.mark.slow
@pytest.mark.parametrize("name", [name.removeprefix("special_") for name in FUNCTIONS])
def test_compiled_they_are_eager_pytorchs(hardware, name):
    x = torch.linspace(0.01, 0.99, 30)
    far = x if name == "ndtri" else torch.cat([x, torch.tensor([3.0, 9.0, 25.0])])
    check(hardware, [getattr(torch.special, name)], far)


@pytest.mark.slow
def test_operators_taken_apart_by_rules_of_our_own(hardware, rng):
    x = torch.from_numpy(rng.standard_normal((4, 5), "float32"))
    index = torch.from_numpy(rng.integers(0, 4, (4, 5)))
    functions = [
        lambda a, i: a.scatter(0, i, a.flip(0), reduce="add"),
        lambda a, i: a.scatter(0, i, 2.5, reduce="multiply"),
        lambda a, i: torch.put(a, torch.tensor([1, -2, 1]), a[0, :3], accumulate=True),
        lambda a, i: torch.diagonal_scatter(a, a[0, :3], 2),
        lambda a, i: torch.take(a, i - 3),
        lambda a, i: torch.take(a, i[0, 0]),
        lambda a, i: torch.as_strided_scatter(a, a[:2, :2], (2, 2), (3, 1), 1),
        lambda a, i: a.scatter_reduce(0, i, a, "amin", include_self=False),
        lambda a, i: torch.full((3,), float("-inf")).maximum(a[0, :3]),
        *(lambda a, i, p=p: torch.nn.functional.pdist(a, p) for p in (0.0, 1.0, 2.0, 3.5, np.inf)),
        lambda a, i: torch.mode(i, 0).values,
        lambda a, i: torch.mode(i, 1, keepdim=True),
        lambda a, i: torch.frexp(a * 1e-30),
        lambda a, i: (torch.signbit(i - 2), torch.angle(i - 2), torch.angle(a)),
    ]
    check(hardware, functions, x, index)
