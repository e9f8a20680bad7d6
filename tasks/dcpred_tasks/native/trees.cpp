// Oblivious trees: the values of rows, and boosting. engine/tree_engine.py explains the arrays of the first,
// training/tree_boosting.py those of the second.
//
// 64 rows go through all trees together, with rows as lanes:
//
// for 16 rows of 16 features, transposed: bin[f] = way through the search tree of f's borders, in registers
// for a block of trees:
//     for each tree: leaf number = Σ 2^level · [bin[feature of the level] ≥ its number]          # bytes
//     for each output: sum += value[leaf number], in 16 bits                                     # a block's sum fits them
//     totals += sums, in 32 bits
#include "boosting.h"
#include "elements.h"
#include "permutes.h"

typedef Lanes<uint8_t, STRIP_ROWS / 2> HalfBytes;

// -- bins -------------------------------------------------------------------------------------------------------------------

constexpr int GROUPS = STRIP_ROWS / LANE_COUNT;

// Numbers of borders that are at most x, for all rows of a strip: nodes below 2^levels.
template <int levels> INLINE void bins_in_registers(const float *x, const float *nodes, uint8_t *bins) {
    Ints node[GROUPS];
    const Floats first = load(nodes);
    UNROLL
    for (int g = 0; g < GROUPS; g++) node[g] = every((int32_t)1);
    UNROLL
    for (int level = 0; level < levels; level++) {
        const float *own = nodes + (1 << level);
        UNROLL
        for (int g = 0; g < GROUPS; g++) {
            Floats border = permuted(first, level < 5 ? load(nodes + (level < 4 ? 0 : 16)) : first, node[g]);
            UNROLL
            for (int part = 0; part < (level < 5 ? 0 : 1 << (level - 5)); part++) {
                const Floats other = permuted(load(own + 32 * part), load(own + 32 * part + 16), node[g]);
                border = part == 0 ? other : (node[g] & ((1 << level) - 32)) >= 32 * part ? other : border;
            }
            node[g] = node[g] + node[g] - (load(x + g * LANE_COUNT) >= border);  // A comparison that holds is −1.
        }
    }
    UNROLL
    for (int g = 0; g < GROUPS; g++)
        store_as(bins + g * LANE_COUNT, __builtin_convertvector(node[g] - (1 << levels), Lanes<uint8_t, LANE_COUNT>));
}

INLINE void bins_by_memory(const float *x, const float *nodes, int64_t levels, uint8_t *bins) {
    for (int row = 0; row < STRIP_ROWS; row++) {
        int32_t node = 1;
        for (int64_t level = 0; level < levels; level++) node = 2 * node + (x[row] >= nodes[node]);
        bins[row] = (uint8_t)(node - (1 << levels));
    }
}

NOINLINE void find_bins(const float *x, const float *nodes, int64_t levels, uint8_t *bins) {
    if (!has_permutes()) return bins_by_memory(x, nodes, levels, bins);
    switch (levels) {
    case 0: return bins_in_registers<0>(x, nodes, bins);
    case 1: return bins_in_registers<1>(x, nodes, bins);
    case 2: return bins_in_registers<2>(x, nodes, bins);
    case 3: return bins_in_registers<3>(x, nodes, bins);
    case 4: return bins_in_registers<4>(x, nodes, bins);
    case 5: return bins_in_registers<5>(x, nodes, bins);
    case 6: return bins_in_registers<6>(x, nodes, bins);
    case 7: return bins_in_registers<7>(x, nodes, bins);
    default: return bins_in_registers<8>(x, nodes, bins);
    }
}

// Features of a row from number `first` on, in single precision: 16. Where it has d < 16, the others are what comes after it, or 0
// without `room` for 16.
template <class T> INLINE Floats features_of(const Raw<T> *row, int64_t first, int64_t d, bool room) {
    if (room) return __builtin_convertvector((part<T, LANE_COUNT>(row, first)), Floats);
    float held[LANE_COUNT] = {};
    for (int64_t j = 0; j < d; j++) held[j] = (float)part<T, 1>(row, j)[0];
    return load(held);
}

// Bins of n ≥ 1 rows of a strip; the last row stands in for those that are missing.
template <class T> NOINLINE void bin_rows(const Forest &p, const Strip &strip, const Source &source, int64_t start, int64_t n, int64_t end) {
    const int64_t d = p.n_features;
    float columns[LANE_COUNT][STRIP_ROWS];
    for (int64_t slot = 0; slot < p.used.size;) {
        const int64_t wanted = p.used[slot], last = d - LANE_COUNT, first = d < LANE_COUNT ? 0 : wanted < last ? wanted : last;
        for (int64_t at = 0; at < STRIP_ROWS; at += LANE_COUNT) {
            Floats rows[LANE_COUNT];
            UNROLL
            for (int r = 0; r < LANE_COUNT; r++) {
                const int64_t row = at + r < n ? at + r : n - 1, address = source.address + (start + row) * source.stride;
                const bool room = d >= LANE_COUNT || address + (first + LANE_COUNT) * (int64_t)sizeof(Raw<T>) <= end;
                rows[r] = features_of<T>((const Raw<T> *)address, first, d, room);
            }
            transpose(rows);
            UNROLL
            for (int r = 0; r < LANE_COUNT; r++) store_as(columns[r] + at, rows[r]);
        }
        for (; slot < p.used.size && p.used[slot] < first + LANE_COUNT; slot++) {
            const int64_t levels = p.levels[slot], size = levels < 4 ? LANE_COUNT : (int64_t)1 << levels;
            const float *nodes = p.borders.at(p.border_at[slot], size);
            find_bins(columns[p.used[slot] - first], nodes, levels, strip.bins.at(slot * STRIP_ROWS, STRIP_ROWS));
        }
    }
}

// -- trees ------------------------------------------------------------------------------------------------------------------

template <int depth> INLINE void leaf_numbers(const Forest &p, const Strip &strip, int64_t first, int64_t last) {
    const uint8_t *bins = strip.bins.data, *least = p.bins.at(first * depth, (last - first) * depth);
    const int64_t *slots = p.slots.at(first * depth, (last - first) * depth);
    uint8_t *out = strip.leaves.at(0, (last - first) * STRIP_ROWS);
    for (int64_t tree = first; tree < last; tree++, slots += depth, least += depth, out += STRIP_ROWS) {
        Bytes number = {};
        UNROLL
        for (int level = 0; level < depth; level++) {
            CHECK(slots[level] + STRIP_ROWS <= strip.bins.size);
            const Bytes bin = load_as<Bytes>(bins + slots[level]);
            const uint8_t bit = (uint8_t)(1 << level);
            number = bin >= least[level] ? number + bit : number;
        }
        store_as(out, number);
    }
}

// Values of 32 rows in a tree.
template <int depth> INLINE Shorts values_in_registers(const int16_t *values, Shorts leaf) {
    Shorts found = permuted_shorts(load_as<Shorts>(values), load_as<Shorts>(values + 32), leaf);
    UNROLL
    for (int part = 1; part < 1 << (depth > 6 ? depth - 6 : 0); part++) {
        const int16_t *place = values + 64 * part;
        Shorts other = permuted_shorts(load_as<Shorts>(place), load_as<Shorts>(place + 32), leaf);
        found = leaf >= (int16_t)(64 * part) ? other : found;
    }
    return found;
}

INLINE void add_to(int32_t *totals, Shorts sums) {
    typedef Lanes<int32_t, 32> Wide;
    store_as(totals, load_as<Wide>(totals) + __builtin_convertvector(sums, Wide));
}

template <int depth> INLINE void add_block(const Forest &p, const Strip &strip, int64_t first, int64_t last) {
    const int64_t step = p.n_outputs * p.n_leaves;
    for (int64_t k = 0; k < p.n_outputs; k++) {
        const int16_t *values = p.values.at(first * step, (last - first) * step) + k * p.n_leaves;
        const uint8_t *leaf = strip.leaves.data;
        int32_t *totals = strip.totals.at(k * STRIP_ROWS, STRIP_ROWS);
        if (has_permutes()) {
            Shorts low = {}, high = {};
            for (int64_t tree = first; tree < last; tree++, values += step, leaf += STRIP_ROWS) {
                low += values_in_registers<depth>(values, __builtin_convertvector(load_as<HalfBytes>(leaf), Shorts));
                high += values_in_registers<depth>(values, __builtin_convertvector(load_as<HalfBytes>(leaf + 32), Shorts));
            }
            add_to(totals, low), add_to(totals + 32, high);
        } else {
            for (int64_t tree = first; tree < last; tree++, values += step, leaf += STRIP_ROWS) {
                UNROLL
                for (int r = 0; r < STRIP_ROWS; r++) totals[r] += values[leaf[r]];
            }
        }
    }
}

template <int depth> NOINLINE void add_trees(const Forest &p, const Strip &strip) {
    for (int64_t block = 0; block + 1 < p.block_at.size; block++) {
        leaf_numbers<depth>(p, strip, p.block_at[block], p.block_at[block + 1]);
        add_block<depth>(p, strip, p.block_at[block], p.block_at[block + 1]);
    }
}

INLINE void add_trees_of(const Forest &p, const Strip &strip) {
    switch (p.depth) {
    case 1: return add_trees<1>(p, strip);
    case 2: return add_trees<2>(p, strip);
    case 3: return add_trees<3>(p, strip);
    case 4: return add_trees<4>(p, strip);
    case 5: return add_trees<5>(p, strip);
    case 6: return add_trees<6>(p, strip);
    case 7: return add_trees<7>(p, strip);
    case 8: return add_trees<8>(p, strip);
    }
}

INLINE void value_rows(const Arguments &of) {
    const Forest &p = of.forest;
    const Strip &strip = of.strip;
    const int64_t end = of.source.address + (of.n - 1) * of.source.stride + p.n_features * of.source.itemsize;
    for (int64_t start = 0; start < of.n; start += STRIP_ROWS) {
        const int64_t n = of.n - start < STRIP_ROWS ? of.n - start : STRIP_ROWS;
        for_dtype(of.source.code, [&](auto dtype) { bin_rows<decltype(dtype)>(p, strip, of.source, start, n, end); });
        int32_t *totals = strip.totals.at(0, p.n_outputs * STRIP_ROWS);
        for (int64_t i = 0; i < p.n_outputs * STRIP_ROWS; i++) totals[i] = 0;
        add_trees_of(p, strip);
        for (int64_t k = 0; k < p.n_outputs; k++)
            for (int64_t r = 0; r < n; r++)
                of.out[(start + r) * p.n_outputs + k] = p.bias[k] + p.scale[k] * (double)totals[k * STRIP_ROWS + r];
    }
}

extern "C" ENTRY int32_t tree_values(const Arguments *arguments) { GUARDED(value_rows(*arguments);) }

// More trees of a boosting.
extern "C" ENTRY int32_t boost(const BoostingArguments *arguments) { GUARDED(Booster{arguments->boosting, arguments->room, arguments->grown}.run();) }
