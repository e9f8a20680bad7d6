// The questions of one oblivious tree, by histograms of gradients: training/tree_boosting.py explains the arrays.
//
// A cell holds the sums of slopes and curvatures of the rows whose bin is at most its own, in the high and the low half of 64 bits:
// integers, exact in any order. A child's histogram is its parent's less the other child's, which is summed where it has fewer rows.
#pragma once
#include "trees_layout.h"

// SplitMix64, as row_sampling.row_hash.
INLINE uint64_t hashed(uint64_t number, int64_t seed) {
    uint64_t z = number + (uint64_t)(seed + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Of `width` outputs.
template <int width> struct Growing {
    typedef Lanes<int64_t, width> Cell;
    typedef Lanes<int64_t, LANE_COUNT> Cells;
    const Boosting &p;
    const BoostingRoom &room;
    int64_t n_columns, n_cells;
    float ridge;
    int64_t begin[1 << MOST_DEPTH], end[1 << MOST_DEPTH], slot[1 << MOST_DEPTH];

    INLINE_MEMBER int64_t *histogram(int64_t which) const { return room.histograms.at(which * n_cells, n_cells); }
    // The cells of a column of the tree.
    INLINE_MEMBER int64_t first_cell(int64_t c) const { return room.cell_at[c]; }
    INLINE_MEMBER int64_t last_cell(int64_t c) const { return c + 1 < n_columns ? room.cell_at[c + 1] : n_cells; }

    template <bool every_column> void sum_rows(int64_t *all, int64_t first, int64_t last) const {
        const int64_t *columns = room.columns.at(0, n_columns), *cell_at = room.cell_at.at(0, n_columns);
        for (int64_t i = first; i < last; i++) {
            const int64_t row = room.rows[i];
            const uint8_t *bins = p.bins.at(row * p.n_features, p.n_features);
            const Cell gradient = load_as<Cell>(room.whole.at(row * width, width));
            for (int64_t c = 0; c < n_columns; c++) {
                int64_t *cell = all + cell_at[c] + bins[every_column ? c : columns[c]] * width;
                CHECK(cell + width <= all + n_cells);
                store_as(cell, load_as<Cell>(cell) + gradient);
            }
        }
    }
    void sum(int64_t which, int64_t first, int64_t last) const {
        int64_t *all = histogram(which);
        __builtin_memset(all, 0, n_cells * sizeof *all);
        if (n_columns == p.n_features) sum_rows<true>(all, first, last);
        else sum_rows<false>(all, first, last);
        for (int64_t c = 0; c < n_columns; c++) {
            Cell sums = {};
            for (int64_t i = first_cell(c); i < last_cell(c); i += width) {
                sums += load_as<Cell>(all + i);
                store_as(all + i, sums);
            }
        }
    }

    INLINE_MEMBER static Ints slopes(Cells cells) { return __builtin_convertvector(cells >> 32, Ints); }
    INLINE_MEMBER static Ints curvatures(Cells cells) { return __builtin_convertvector(cells & 0xFFFFFFFF, Ints); }
    // Those of all rows of a leaf, in every cell of a vector.
    INLINE_MEMBER Cells totals(const int64_t *cells) const {
        Cells all;
        for (int i = 0; i < LANE_COUNT; i++) all[i] = cells[last_cell(0) - width + i % width];
        return all;
    }
    // Σ G² / (H + ridge) of the rows in some cells and of the others.
    INLINE_MEMBER Floats gain(Cells cells, Cells all) const {
        const Cells rest = all - cells;
        const Floats g = __builtin_convertvector(slopes(cells), Floats), h = __builtin_convertvector(curvatures(cells), Floats) + ridge;
        const Floats other = __builtin_convertvector(slopes(rest), Floats);
        const Floats weight = __builtin_convertvector(curvatures(rest), Floats) + ridge;
        return (g * g * weight + other * other * h) / (h * weight);
    }
    void add_gains(int64_t which) const {
        const int64_t *cells = histogram(which);
        const Cells all = totals(cells);
        float *gains = room.gains.at(0, n_cells);
        for (int64_t i = 0; i < n_cells; i += LANE_COUNT) store_as(gains + i, load(gains + i) + gain(load_as<Cells>(cells + i), all));
    }
    // Those of a child that was summed, and of the other, which takes the parent's place.
    void add_gains_of_both(int64_t parent, int64_t child) const {
        int64_t *whole = histogram(parent), *part = histogram(child);
        const Cells all = totals(part), rest = totals(whole) - all;
        float *gains = room.gains.at(0, n_cells);
        for (int64_t i = 0; i < n_cells; i += LANE_COUNT) {
            const Cells own = load_as<Cells>(part + i), other = load_as<Cells>(whole + i) - own;
            store_as(whole + i, other);
            store_as(gains + i, load(gains + i) + (gain(own, all) + gain(other, rest)));
        }
    }

    // The best question by `gains`; false where none gains anything.
    bool ask(int32_t *feature, uint8_t *least) const {
        float *gains = room.gains.at(0, n_cells);
        for (int64_t i = 0; width > 1 && i < n_cells / width; i++) {
            float sum = 0.0f;
            for (int k = 0; k < width; k++) sum += gains[i * width + k];
            gains[i] = sum;
        }
        const int64_t n = n_cells / width;
        const float none = gains[last_cell(0) / width - 1];  // All rows are in this cell.
        Floats most = every(none);
        for (int64_t i = 0; i < n; i += LANE_COUNT) {
            const Floats here = load(gains + i);
            most = here > most ? here : most;
        }
        float best = none;
        for (int i = 0; i < LANE_COUNT; i++) best = most[i] > best ? most[i] : best;
        if (!(best > none)) return false;
        int64_t place = 0, c = 0;
        while (gains[place] != best) place++;
        while (last_cell(c) <= place * width) c++;
        *feature = (int32_t)room.columns[c], *least = (uint8_t)(place - first_cell(c) / width + 1);
        return true;
    }

    // Rows of a leaf whose bin is too low stay in front, in their order; returns where the others begin.
    int64_t divide(int64_t leaf, int64_t feature, uint8_t least) const {
        const uint8_t *bins = p.columns.at(feature * p.n_rows, p.n_rows);
        int32_t *rows = room.rows.at(0, end[leaf]), *back = room.back.at(0, end[leaf] - begin[leaf]);
        int64_t front = begin[leaf], n_back = 0;
        for (int64_t i = begin[leaf]; i < end[leaf]; i++) {
            const int32_t row = rows[i];
            const bool yes = bins[row] >= least;
            rows[front] = row, back[n_back] = row;
            front += !yes, n_back += yes;
        }
        __builtin_memcpy(rows + front, back, n_back * sizeof *back);
        return front;
    }

    void descend(int64_t level, int64_t feature, uint8_t least) {
        const int64_t n_leaves = (int64_t)1 << level;
        __builtin_memset(room.gains.at(0, n_cells), 0, n_cells * sizeof(float));
        for (int64_t leaf = 0; leaf < n_leaves; leaf++) {
            const int64_t other = leaf + n_leaves, from = divide(leaf, feature, least), parent = slot[leaf];
            begin[other] = from, end[other] = end[leaf], end[leaf] = from;
            if (level + 1 == p.depth) continue;
            const bool small_back = end[other] - begin[other] < end[leaf] - begin[leaf];
            const int64_t small = small_back ? other : leaf, large = small_back ? leaf : other;
            slot[small] = other, slot[large] = parent;
            if (begin[small] < end[small]) {
                sum(other, begin[small], end[small]);
                add_gains_of_both(parent, other);
            } else if (begin[large] < end[large])
                add_gains(parent);
        }
    }

    void run(int64_t n_rows, int32_t *feature, uint8_t *least) {
        begin[0] = 0, end[0] = n_rows, slot[0] = 0;
        sum(0, 0, n_rows);
        __builtin_memset(room.gains.at(0, n_cells), 0, n_cells * sizeof(float));
        add_gains(0);
        int64_t level = 0;
        for (; level < p.depth && ask(feature + level, least + level); level++) descend(level, feature[level], least[level]);
        for (; level < p.depth; level++) feature[level] = (int32_t)room.columns[0], least[level] = NEVER;
    }
};
