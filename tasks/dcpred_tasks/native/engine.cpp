// The engine: tiles of rows walk down the tree, and are scored in their leaves. DESIGN.md has the words, one row as an example, and the
// loops; engine.py describes the two passes.
#include "fixed.h"
#include "leaves.h"
#include "maps.h"

// The rank of a leaf; the number of leaves where it has no landmarks in lanes.
INLINE int64_t sort_key(const Packed &p, uint32_t leaf) {
    if (leaf != NOWHERE && p.group_at[leaf] < p.group_at[leaf + 1]) return p.rank[leaf];
    return p.group_at.size - 1;
}

struct Sorted {  // how many rows use int8 limbs, limbs or products, and how many have landmarks
    int64_t by_digits, by_products, count;
};
// Sort the n rows of a tile into tile_sorted: by rank of their leaf, those without landmarks last.
NOINLINE Sorted sort_by_leaf(const Packed &p, int64_t n, const Room &room) {
    const int64_t n_leaves = p.group_at.size - 1;
    const Array<uint32_t> sorted = room.tile_sorted;
    if (n_leaves == 1 && p.group_at[1] > 0 && p.radius.size == 0) {
        for (int64_t i = 0; i < n; i++) sorted[i] = (uint32_t)i;
        return {p.n_by_digits > 0 ? n : 0, p.n_by_products > 0 ? n : 0, n};
    }
    const Array<int64_t> counts = room.counts;
    for (int64_t k = 0; k < n_leaves + 2; k++) counts[k] = 0;
    for (int64_t i = 0; i < n; i++) counts[sort_key(p, room.leaf[i]) + 1]++;
    for (int64_t leaf = 0; leaf < n_leaves; leaf++) counts[leaf + 1] += counts[leaf];
    const Sorted found = {counts[p.n_by_digits], counts[p.n_by_products], counts[n_leaves]};
    for (int64_t i = 0; i < n; i++) sorted[counts[sort_key(p, room.leaf[i])]++] = (uint32_t)i;
    return found;
}

// Put all rows at the root, and return how many are to be walked down in single precision. Rows whose squares overflow are walked down
// here, in double precision.
INLINE int64_t start_at_root(const Descent &of) {
    const Room &room = of.room;
    const bool has_tree = of.p.radius.size > 0;
    bool all_fit = true;
    for (int64_t i = 0; i < of.n; i++) {
        of.status[of.start + i] = OK;
        of.leaf[i] = 0, room.node[i] = 0, room.order[i] = (uint32_t)i;
        all_fit &= room.norm[i] < (float)HUGE;
        room.norm[i] = __builtin_sqrtf(room.norm[i]);
    }
    if (all_fit) return has_tree ? of.n : 0;
    int64_t active = 0;
    for (int64_t i = 0; i < of.n; i++) {
        if (!(room.norm[i] < (float)ROOT_OF_HUGE)) of.leaf[i] = walk_in_double(of.q, of.source, of.start + i, 0, of.status, room);
        else if (has_tree) room.order[active++] = (uint32_t)i;
    }
    return active;
}

// The leaf of each row; NOWHERE and NON_FINITE_FEATURE for a row that cannot be scored. A tree of one leaf with landmarks gives no row a
// status here: the leaf pass finds those rows.
NOINLINE void descend(const Descent of) {
    const Packed &p = of.p;
    const Room &room = of.room;
    if (p.radius.size == 0 && p.group_at[1] > 0) {
        for (int64_t i = 0; i < of.n; i++) of.leaf[i] = 0, of.status[of.start + i] = OK;
        return;
    }
    for (int64_t i = 0; i < of.n; i++) {
        room.address[i] = of.source.address + (of.start + i) * of.source.stride;
        room.upcoming[i] = of.source.address + (of.start + of.n + i) * of.source.stride;
    }
    const bool fixed = has_pair_products() && p.fixed.unit.size > 0;
    if (fixed) load_fixed(p, of.source, of.n, room);
    else load_centred(p, of.source, of.n, room.address, room.norm, room.rows, room);
    int64_t active = start_at_root(of), level = 0;
    if (p.radius.size == 0) return;
    if (fixed) {
        active = walk_fixed(of, active);
        for (int64_t r = 0; r < active; r++) {
            const int64_t i = room.order[r];
            load_centred(p, of.source, 1, room.address.from(i), room.norm.from(i), room.rows.from(i * p.width), room);
            room.norm[i] = __builtin_sqrtf(room.norm[i]);
        }
        level = PREFETCHED_LEVELS;
    }
    if (p.group_features <= FEW_FEATURES && !p.by_distances) descend_few(of, active);
    else descend_wide(of, active, level);
}

// Score all rows, descent_rows at a time down the tree and leaf_rows at a time in the leaves. Heavy-tailed features are mapped
// first.
INLINE void score_tiles(const Arguments &of) {
    const Packed &p = of.p;
    const Exact &q = of.q;
    const Room &room = of.room;
    const Out &out = of.out;
    for (int64_t start = 0; start < of.n; start += of.leaf_rows) {
        const int64_t n = least(of.leaf_rows, of.n - start);
        const Source rows = p.maps.stride > 0 ? map_rows(p, of.source, start, n, room) : of.source;
        for (int64_t at = 0; at < n; at += of.descent_rows) {
            const Array<uint32_t> leaf = room.leaf.from(at);
            descend({p, q, rows, start + at, least(of.descent_rows, n - at), leaf, out.status, room});
        }
        const Sorted sorted = sort_by_leaf(p, n, room);
        const int64_t n_redo = score_leaves({p, rows, start, sorted.count, out, room, 0}, sorted.by_digits, sorted.by_products);
        auto finish = [&](int64_t k) {
            const uint32_t i = room.tile_sorted[k], leaf = room.leaf[i];
            if (!finish_constant(p, q, leaf, start + i, out)) finish_plain(p, q, rows, leaf, start + i, out, room);
        };
        for (int64_t k = 0; k < n_redo; k++) finish(k);
        for (int64_t k = sorted.count; k < n; k++) finish(k);
        if (out.leaf.size > 0)
            for (int64_t i = 0; i < n; i++) out.leaf[start + i] = room.leaf[i];
    }
}

extern "C" ENTRY int32_t score(const Arguments *arguments) { GUARDED(score_tiles(*arguments);) }
