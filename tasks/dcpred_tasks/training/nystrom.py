"""The Nyström approximation with pseudo-landmarks: Ḡ = C̄ W̄ C̄ᵀ (Hsieh et al. 2014, eq. 4 and 5)."""

import numpy as np

from dcpred_tasks.dtypes import FloatArray

# Smallest singular value that is inverted, relative to the largest: products of near landmarks are nearly
# dependent.
PINV_CUTOFF = 1e-6
RANK_CUTOFF = 1e-10  # smallest retained eigenvalue, relative to the largest


def nystrom_root(C_I: FloatArray, G_II: FloatArray) -> FloatArray:
    """A factor R with R Rᵀ = W̄ = C̄_I† G_II C̄_I†ᵀ. Then Z = C̄ R has Z Zᵀ = Ḡ.

    C_I   float64 (|I|, q), c̄ of the rows of the sample I
    G_II  float64 (|I|, |I|), the exact kernel on the sample
    returns float64 (q, rank)
    """
    P = np.linalg.pinv(C_I, rcond=PINV_CUTOFF)
    values, vectors = np.linalg.eigh(P @ G_II @ P.T)
    kept = values > max(values[-1], 0.0) * RANK_CUTOFF
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
