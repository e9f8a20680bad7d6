"""The baselines that `dcpred compare` sets beside the compact model: approximations of the exact kernel
model, and local models, from the papers that the paper compares with.

In:   the rows of a leaf, a kernel, the settings of training, and a size.
Out:  leaf models, as dcpred_tasks.model.leaf_model defines them, and `LEAF_MODELS`, the table of them. It is
      the entry point `baselines` of the group `dcpred.leaf_models`, by which dcpred finds them.

Each file holds one kind of method: its prediction, which needs NumPy alone, and its fit, which imports
scikit-learn and dcpred_tasks.training inside functions. It never imports dcpred.

May import: dcpred_tasks.
"""

from typing import Any

from dcpred_compare.baselines import adapt_svm, ball_tree, ldkl, linear, lmkl, support_tree
from dcpred_compare.baselines.leaf_model_type import CLASSES, LOCAL, LeafModelType
from dcpred_tasks.model.exact import Exact, exact_from_arrays

_LANDMARKS, _FEATURES = ("landmarks", (16, 64, 256, 1024)), ("features", (64, 256, 1024, 4096))
_GROUPS = (2, 16, 64, 256)
_CANCELLATION = (
    "AdaptSVM and GroupSVM approximate the sums of both signs, whose difference is the decision, with errors"
    " relative to each sum. Where classes overlap, the sums are hundreds of times their difference. Then"
    " AdaptSVM keeps decisions only with a τ as small as 0.001, which computes most groups exactly; GroupSVM"
    " has no such fallback."
)
_FALLBACK = "bounds do not help: the exact model"


def _fit_aesvm(*args: Any) -> Exact:
    from dcpred_compare.baselines.aesvm import fit

    return fit(*args)


def _fit_reduced_set(*args: Any) -> Exact:
    from dcpred_compare.baselines.reduced_set import fit

    return fit(*args)


def _basis(
    name: str, meaning: str, counted: str, sizes: tuple[int, ...], kernel: str = "rbf"
) -> LeafModelType:
    """A linear model on the functions of a basis."""
    return LeafModelType(
        name,
        meaning,
        linear.fit,
        linear.from_arrays,
        fit_basis=linear.fit_basis,
        kernel=kernel,
        counted=counted,
        sizes=sizes,
    )


_ALL = (
    _basis(
        "nystrom",
        "Kernel values of rows drawn at random, whitened (Williams and Seeger 2001).",
        *_LANDMARKS,
    ),
    _basis(
        "kmeans_nystrom",
        "Kernel values of k-means centres, whitened (Zhang, Tsang and Kwok 2008).",
        *_LANDMARKS,
    ),
    _basis("fourier", "Random Fourier features (Rahimi and Recht 2007).", *_FEATURES),
    _basis(
        "fastfood", "Fourier features of products with S H G Π H B (Le, Sarlós and Smola 2013).", *_FEATURES
    ),
    _basis(
        "tensor_sketch",
        "Count sketches of the tensor product, by Fourier transforms (Pham and Pagh 2013).",
        *_FEATURES,
        kernel="polynomial",
    ),
    _basis("maclaurin", "Random products of signs (Kar and Karnick 2012).", *_FEATURES, kernel="polynomial"),
    _basis(
        "maclaurin_h01",
        "The same with exact constant and linear parts, H0/1 (Kar and Karnick 2012).",
        "random features beside those parts",
        _FEATURES[1],
        kernel="polynomial",
    ),
    LeafModelType(
        "adapt_svm",
        "Support vectors in groups, computed exactly where their variance is large (Cossalter et al. 2011).",
        adapt_svm.fit,
        adapt_svm.from_arrays,
        tasks=CLASSES,
        counted="groups",
        sizes=_GROUPS,
        tolerated="τ",
        # One that keeps the decisions of the exact model, and that of most figures of the paper.
        tolerances=(0.001, 1000.0),
        most_rows=LOCAL,
        wide=True,
        caveat=_CANCELLATION,
    ),
    LeafModelType(
        "group_svm",
        "Support vectors in groups, by their means alone (Cossalter et al. 2011).",
        adapt_svm.fit,
        exact_from_arrays,
        tasks=CLASSES,
        counted="groups",
        sizes=_GROUPS,
        most_rows=LOCAL,
        caveat=_CANCELLATION,
    ),
    LeafModelType(
        "reduced_set",
        "Vectors found one by one that stand for all support vectors (Schölkopf et al. 1998).",
        _fit_reduced_set,
        exact_from_arrays,
        counted="vectors",
        sizes=(8, 16, 32, 64, 128),
        most_rows=LOCAL,
        second_hand=True,
    ),
    LeafModelType(
        "aesvm",
        "An SVM of the extreme points of subsets, with weights (Nandan, Khargonekar and Talathi 2014).",
        _fit_aesvm,
        exact_from_arrays,
        tasks=CLASSES,
        counted="extreme points of 100 rows",
        sizes=(5, 20, 50),
        second_hand=True,
    ),
    LeafModelType(
        "ldkl",
        "Local deep kernels: linear models at the nodes of a learned tree (Jose et al. 2013).",
        ldkl.fit,
        ldkl.from_arrays,
        tasks=CLASSES,
        counted="leaves of its tree",
        sizes=(4, 16, 64, 256),
        own_penalty=True,
        second_hand=True,
    ),
    LeafModelType(
        "lmkl",
        "Localised multiple kernels, weighted by a gate that sees the row (Gönen and Alpaydın 2008); trained"
        " on 2,000 rows at most.",
        lmkl.fit,
        lmkl.from_arrays,
        tasks=CLASSES,
        most_rows=2_000,
        second_hand=True,
    ),
    LeafModelType(
        "ball_tree",
        "The exact model by bounds over the cells of a ball tree, until the class is certain (Liu, Moore and"
        " Gray 2003).",
        ball_tree.fit,
        ball_tree.from_arrays,
        tasks=CLASSES,
        counted="support vectors of a cell",
        sizes=(8, 32),
        most_rows=LOCAL,
        fallback=_FALLBACK,
        second_hand=True,
    ),
    LeafModelType(
        "support_tree",
        "The exact model by cells of its support vectors, within a bound on the error (cf. Ukkonen 2010).",
        support_tree.fit,
        support_tree.from_arrays,
        counted="support vectors of a cell",
        sizes=(8, 32),
        tolerated="error",
        tolerances=(0.02, 0.1),
        most_rows=LOCAL,
        fallback=_FALLBACK,
        second_hand=True,
    ),
)
LEAF_MODELS = {kind.name: kind for kind in _ALL}
