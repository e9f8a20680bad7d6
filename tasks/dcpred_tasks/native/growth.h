// The questions of one oblivious tree, by histograms of gradients: training/tree_boosting.py explains the arrays.
//
// All sums are of integers: exact, in any order. A child's histogram is that of its parent less that of the other child, which is
// summed where it has fewer rows.
#pragma once
#include "trees_layout.h"

struct Growing {
    typedef Lanes<int64_t, 2> Pair;
    typedef Lanes<int32_t, 2> Small;
    const Growth &p;
    const GrowthRoom &room;
    int64_t begin[1 << MOST_DEPTH], end[1 << MOST_DEPTH], slot[1 << MOST_DEPTH];

    INLINE_MEMBER int64_t size() const { return p.columns.size * p.n_outputs * p.n_bins * 2; }
    INLINE_MEMBER int64_t *histogram(int64_t which) const { return room.histograms.at(which * size(), size()); }
    INLINE_MEMBER const uint8_t *bins_of(int64_t row) const { return p.bins.at(row * p.n_features, p.n_features); }

    template <bool one_output> void sum_rows(int64_t which, int64_t first, int64_t last) {
        int64_t *all = histogram(which);
        for (int64_t i = 0; i < size(); i++) all[i] = 0;
        const int64_t k = one_output ? 1 : p.n_outputs, *columns = p.columns.data;
        for (int64_t i = first; i < last; i++) {
            const int64_t row = room.rows[i];
            const uint8_t *bins = bins_of(row);
            const int32_t *gradient = p.gradient.at(row * k * 2, k * 2);
            int64_t *place = all;
            for (int64_t c = 0; c < p.columns.size; c++)
                for (int64_t output = 0; output < k; output++, place += p.n_bins * 2) {
                    CHECK(bins[columns[c]] < p.n_bins);
                    int64_t *cell = place + bins[columns[c]] * 2;
                    store_as(cell, load_as<Pair>(cell) + __builtin_convertvector(load_as<Small>(gradient + 2 * output), Pair));
                }
        }
    }
    void sum(int64_t which, int64_t first, int64_t last) {
        if (p.n_outputs == 1) sum_rows<true>(which, first, last);
        else sum_rows<false>(which, first, last);
    }

    // What a split of a leaf gains at every bin: Σ G² / (H + ridge) of both sides.
    void add_gains(int64_t leaf) {
        const int64_t *cells = histogram(slot[leaf]);
        const Doubles ridge = every(p.ridge);
        for (int64_t c = 0; c < p.columns.size; c++) {
            double *gains = room.gains.at(c * p.n_bins, p.n_bins);
            for (int64_t output = 0; output < p.n_outputs; output++, cells += p.n_bins * 2) {
                double *below = room.below.at(0, 2 * p.n_bins), *beside = below + p.n_bins;
                Pair sums = {};
                for (int64_t bin = 0; bin < p.n_bins; bin++) {
                    below[bin] = (double)sums[0], beside[bin] = (double)sums[1];
                    sums += load_as<Pair>(cells + 2 * bin);
                }
                const Doubles all = every((double)sums[0]), both = every((double)sums[1]);
                for (int64_t bin = 0; bin < p.n_bins; bin += LANES) {
                    const Doubles g = load(below + bin), h = load(beside + bin), other = all - g;
                    store_as(gains + bin, load(gains + bin) + (g * g / (h + ridge) + other * other / (both - h + ridge)));
                }
            }
        }
    }

    // Rows of a leaf whose bin is too low stay in front, in their order; returns where the others begin.
    int64_t divide(int64_t leaf, int64_t feature, uint8_t least) {
        int64_t front = begin[leaf], n_back = 0;
        for (int64_t i = begin[leaf]; i < end[leaf]; i++) {
            const int32_t row = room.rows[i];
            const bool yes = bins_of(row)[feature] >= least;
            room.rows[front] = row, room.back[n_back] = row;
            front += !yes, n_back += yes;
        }
        for (int64_t i = 0; i < n_back; i++) room.rows[front + i] = room.back[i];
        return front;
    }

    bool ask(int64_t level) {
        const int64_t n_leaves = (int64_t)1 << level;
        for (int64_t i = 0; i < p.columns.size * p.n_bins; i++) room.gains[i] = 0.0;
        for (int64_t leaf = 0; leaf < n_leaves; leaf++)
            if (begin[leaf] < end[leaf]) add_gains(leaf);
        int64_t best = 0;  // Bin 0 divides nothing.
        for (int64_t i = 0; i < p.columns.size * p.n_bins; i++)
            if (room.gains[i] > room.gains[best]) best = i;
        if (best == 0 || !(room.gains[best] > room.gains[0])) return false;
        room.feature[level] = (int32_t)p.columns[best / p.n_bins], room.bin[level] = (uint8_t)(best % p.n_bins);
        return true;
    }

    void descend(int64_t level) {
        const int64_t n_leaves = (int64_t)1 << level;
        for (int64_t leaf = 0; leaf < n_leaves; leaf++) {
            const int64_t other = leaf + n_leaves, from = divide(leaf, room.feature[level], room.bin[level]);
            begin[other] = from, end[other] = end[leaf], end[leaf] = from;
            if (level + 1 == p.depth) continue;
            const bool small_back = end[other] - begin[other] < end[leaf] - begin[leaf];
            const int64_t small = small_back ? other : leaf, large = small_back ? leaf : other, parent = slot[leaf];
            slot[small] = other, slot[large] = parent;
            sum(other, begin[small], end[small]);
            int64_t *whole = histogram(parent), *part = histogram(other);
            for (int64_t i = 0; i < size(); i += 2)
                store_as(whole + i, load_as<Pair>(whole + i) - load_as<Pair>(part + i));
        }
    }

    void run() {
        CHECK(p.depth >= 1 && p.depth <= MOST_DEPTH && p.n_bins % LANES == 0);
        begin[0] = 0, end[0] = room.rows.size, slot[0] = 0;
        sum(0, 0, room.rows.size);
        int64_t level = 0;
        for (; level < p.depth && ask(level); level++) descend(level);
        for (; level < p.depth; level++) room.feature[level] = (int32_t)p.columns[0], room.bin[level] = NEVER;
        for (int64_t row = 0; row < room.leaf.size; row++) {
            uint8_t leaf = 0;
            for (int64_t k = 0; k < p.depth; k++) leaf |= (uint8_t)((bins_of(row)[room.feature[k]] >= room.bin[k]) << k);
            room.leaf[row] = leaf;
        }
    }
};
