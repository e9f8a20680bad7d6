// The nearest rows of a pool, by squared distances, as dcpred_tasks.training.learned_scaling.neighbours.
//
// The pool lies in strips of 16 rows, lanes being rows, like the rows of objective.h. A distance is |b|² − 2 a·b: |a|² orders nothing.
// `Scan.run` makes them of raw rows, in units of √w. Each row keeps a list of candidates up to a limit, and selects from it when it is full. The first limit comes from least distances
// of groups of the pool: in k groups there are k rows that are no farther than the k-th of these.
#pragma once
#include "kernels.h"
#include "refinement_layout.h"

constexpr float FAR_AWAY = 3.402823466e+38f;  // what is not finite counts as this

// The first features of a row from here on, at most 16 of `left`, and zeros.
INLINE Floats features_of(const float *row, int64_t left) {
    if (left >= LANES) return load(row);
    float own[LANES] = {};
    for (int64_t i = 0; i < left; i++) own[i] = row[i];
    return load(own);
}

struct Candidates {  // of one row
    float *distance;
    int32_t *number;

    INLINE_MEMBER void swap(int64_t i, int64_t j) const {
        const float d = distance[i];
        const int32_t n = number[i];
        distance[i] = distance[j], number[i] = number[j];
        distance[j] = d, number[j] = n;
    }
    // Bring the k nearest of `count` to the front (Hoare's selection); the largest of these.
    __attribute__((noinline)) float select(int64_t count, int64_t k) const {
        for (int64_t low = 0, high = count - 1; low < high;) {
            const float pivot = distance[low + (high - low) / 2];
            int64_t i = low, j = high;
            while (i <= j) {
                while (distance[i] < pivot) i++;
                while (distance[j] > pivot) j--;
                if (i <= j) swap(i++, j--);
            }
            if (k - 1 <= j)
                high = j;
            else if (k - 1 >= i)
                low = i;
            else
                break;
        }
        float most = distance[0];
        for (int64_t i = 1; i < k; i++) most = distance[i] > most ? distance[i] : most;
        return most;
    }
};

struct Scan {
    const Search &s;

    INLINE_MEMBER Candidates of_row(int64_t row) const {
        return {s.distance.at(row * s.room, s.room), s.number.at(row * s.room, s.room)};
    }

    // Add the rows of a strip that are within the limit of a row.
    INLINE_MEMBER void add(int64_t row, int64_t strip, Floats total, uint32_t bits) const {
        const Candidates own = of_row(row);
        float distance[LANES];
        store_as(distance, total);
        int64_t count = s.held[row];
        for (; bits != 0; bits &= bits - 1) {
            const int64_t lane = __builtin_ctz(bits), number = strip * LANES + lane;
            if (number >= s.n_pool || number == s.pool_row[row]) continue;
            own.distance[count] = distance[lane], own.number[count++] = (int32_t)number;
        }
        if (count > s.room - LANES) {
            s.limit[row] = own.select(count, s.k);
            count = s.k;
        }
        s.held[row] = count;
    }

    // `use` gets the distances of eight rows to some strips of the pool, strip by strip.
    template <class Use> INLINE_MEMBER void compare(int64_t first_row, int64_t first, int64_t last, Use use) const {
        const int64_t d = s.n_features, width = d + 1;
        const float *rows[AT_ONCE];
UNROLL
        for (int t = 0; t < AT_ONCE; t++) rows[t] = s.rows.at((first_row + t) * d, d);
        for (int64_t strip = first; strip < last; strip++) {
            const float *pool = s.pool.at(strip * width * LANES, width * LANES);
            Floats total[AT_ONCE];
UNROLL
            for (int t = 0; t < AT_ONCE; t++) total[t] = load(pool + d * LANES);
            for (int64_t f = 0; f < d; f++) {
                const Floats value = load(pool + f * LANES);
UNROLL
                for (int t = 0; t < AT_ONCE; t++) total[t] = fma(every(rows[t][f]), value, total[t]);
            }
UNROLL
            for (int t = 0; t < AT_ONCE; t++) total[t] = total[t] < FAR_AWAY ? total[t] : every(FAR_AWAY);
            use(strip, total);
        }
    }

    // Limits of eight rows from the least distances in groups of these strips: every lane of every n-th strip is a group.
    __attribute__((noinline)) void set_limits(int64_t first_row, int64_t first, int64_t last) const {
        const int64_t groups = s.room / (2 * LANES);
        for (int t = 0; t < AT_ONCE; t++)
            for (int64_t i = 0; i < groups * LANES; i++) of_row(first_row + t).distance[i] = FAR_AWAY;
        compare(first_row, first, last, [&](int64_t strip, const Floats(&total)[AT_ONCE]) {
            for (int t = 0; t < AT_ONCE; t++) {
                float *place = of_row(first_row + t).distance + strip % groups * LANES;
                const Floats least = load(place);
                store_as(place, total[t] < least ? total[t] : least);
            }
        });
        // One more than k: the row itself may be the nearest of a group.
        for (int t = 0; t < AT_ONCE; t++)
            s.limit[first_row + t] = of_row(first_row + t).select(groups * LANES, s.k + 1);
    }

    __attribute__((noinline)) void add_strips(int64_t first_row, int64_t first, int64_t last) const {
        const float *limit = s.limit.at(first_row, AT_ONCE);
        compare(first_row, first, last, [&](int64_t strip, const Floats(&total)[AT_ONCE]) {
            for (int t = 0; t < AT_ONCE; t++) {
                const uint32_t bits = bits_of(total[t] <= every(limit[t]));
                if (bits != 0) add(first_row + t, strip, total[t], bits);
            }
        });
    }

    // Strips of the pool, and rows times −2, in units of √w; features with w = 0 are left out.
    __attribute__((noinline)) void place(int64_t n_strips) const {
        const int64_t d = s.n_features, width = d + 1, n_rows = s.held.size;
        for (int64_t strip = 0; strip < n_strips; strip++) {
            float *out = s.pool.at(strip * width * LANES, width * LANES);
            const int64_t left = s.n_pool - strip * LANES, lanes = left < LANES ? left : LANES;
            Floats square = {};
            for (int64_t f = 0; f < d; f++) {
                float own[LANES] = {};
                for (int64_t lane = 0; lane < lanes; lane++) own[lane] = s.source[(strip * LANES + lane) * s.columns + s.used[f]];
                const Floats value = load(own) * every(s.root[s.used[f]]);
                store_as(out + f * LANES, value);
                square = fma(value, value, square);
            }
            for (int64_t lane = lanes; lane < LANES; lane++) square[lane] = FAR_AWAY;
            store_as(out + d * LANES, square);
        }
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t f = 0; f < d; f++)
                s.rows[row * d + f] = -2.0f * s.root[s.used[f]] * s.given[row * s.columns + s.used[f]];
    }

    // Σ w (a − b)² of a row and one of the pool.
    INLINE_MEMBER float square(const float *row, int64_t number) const {
        const float *other = s.source.at(number * s.columns, s.columns);
        Floats total = {};
        for (int64_t f = 0; f < s.columns; f += LANES) {
            const int64_t left = s.columns - f;
            const Floats off = (features_of(row + f, left) - features_of(other + f, left)) * load(s.root.at(f, LANES));
            total = fma(off, off, total);
        }
        const float sum = lane_sum(total);
        return sum < FAR_AWAY ? sum : FAR_AWAY;
    }
    const float *given(int64_t row) const { return s.given.at(row * s.columns, s.columns); }

    void run() const {
        const int64_t n_strips = s.pool.size / ((s.n_features + 1) * LANES), n_rows = s.held.size;
        CHECK(s.n_pool <= n_strips * LANES);
        place(n_strips);
        for (int64_t row = 0; row < n_rows; row++) s.held[row] = 0;
        for (int64_t first = 0; first < n_strips; first += s.tile_strips) {
            const int64_t last = first + s.tile_strips < n_strips ? first + s.tile_strips : n_strips;
            for (int64_t row = 0; row < n_rows; row += AT_ONCE) {
                if (first == 0) set_limits(row, first, last);
                add_strips(row, first, last);
            }
        }
        for (int64_t row = 0; row < n_rows; row++) {
            const Candidates own = of_row(row);
            own.select(s.held[row], s.k);
            for (int64_t j = 0; j < s.k; j++) own.distance[j] = square(given(row), own.number[j]);
        }
    }
};
