/* How rows are scored. Sixteen rows of one node or leaf go together, and a lane of a vector is a row: a centre, a
 * landmark or a weight is one number for all of them. What single precision cannot decide goes row by row in double
 * precision, at the end of this part. No state is kept: threads may call at once. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#define LANES 16
#define AT_ONCE 8 /* sums that stay in registers */
#define UNIT 5.9604644775390625e-8
#define LARGEST_SINGLE 3.4028235677973366e38 /* from here on, single precision takes a number for infinite */
typedef float lanes __attribute__((vector_size(64)));
typedef int ints __attribute__((vector_size(64)));
typedef double doubles __attribute__((vector_size(128)));
typedef union { lanes v; float f[LANES]; } row_lanes;
typedef union { ints v; int i[LANES]; } row_ints;
typedef union { doubles v; double d[LANES]; } row_doubles;

static inline lanes choose(ints mask, lanes a, lanes b) { return (lanes)((mask & (ints)a) | (~mask & (ints)b)); }
static inline lanes every(float value) { return (lanes){0} + value; }

/* -- raw rows as columns ------------------------------------------------------------------------------------- */

#if HAS_PICKS
#define PICK(j) picks[j]
#else
#define PICK(j) (j)
#endif

#if HAS_COLUMNS || HAS_TERMS
/* A row with means in place of categories. */
static inline void encoded_row(const dcpred_row *x, double *raw) {
    for (int j = 0; j < N_FEATURES; j++) raw[j] = x[j];
#if N_TARGETS
    for (int t = 0; t < N_TARGETS; t++) {
        const double code = raw[target_feature[t]];
        const int size = target_at[t + 1] - target_at[t];
        const int known = code >= 0 && code < size && code == floor(code);
        const double *means = target_table + (target_at[t] + (known ? (int)code : size - 2)) * N_MEANS;
        const int finite = code - code == 0;
        raw[target_feature[t]] = finite ? means[0] : code;
        for (int k = 1; k < N_MEANS; k++) raw[N_FEATURES + t * (N_MEANS - 1) + k - 1] = finite ? means[k] : code;
    }
#endif
}
#endif

#if HAS_COLUMNS
static void columns_of(const dcpred_row *x, double *out) {
    double raw[N_ENCODED];
    encoded_row(x, raw);
    for (int k = 0; k < N_COLUMNS - N_OWN; k++) out[N_OWN + k] = raw[indicated[k]] != raw[indicated[k]];
#if HAS_MAP
    for (int f = 0; f < N_ENCODED; f++) {
        if (amount_rate[f] == 0) continue;
        const float u = (float)((raw[f] - amount_centre[f]) * amount_rate[f]);
        raw[f] = u;
        if (!(fabsf(u) < INFINITY)) continue;
#if HAS_MAP == 1
        const float near = u > MAP_FAR ? MAP_FAR : u < -MAP_FAR ? -MAP_FAR : u, part = near * MAP_THIRD;
        raw[f] = near / sqrtf(1 + part * part);
#else
        const float *knot = map_knot + map_at[f];
        int low = 0, high = map_at[f + 1] - map_at[f]; /* how many knots are not above u */
        while (low < high) {
            const int middle = (low + high) / 2;
            if (knot[middle] <= u) low = middle + 1;
            else high = middle;
        }
        const int k = map_at[f] + (low > 0 ? low - 1 : 0);
        raw[f] = (u - map_knot[k]) * (low > 0 ? map_slope[k] : 0.0f) + map_value[k];
#endif
    }
#endif
#if HAS_GAPS
    for (int f = 0; f < N_ENCODED; f++) raw[f] = raw[f] != raw[f] ? gap[f] : raw[f];
#endif
#if HAS_CODES
    for (int f = 0; f < N_ENCODED; f++) {
        const int first = column_first[f], last = column_first[f + 1];
        if (code_extent[f] == 0) {
            out[first] = raw[f];
            continue;
        }
        const double none = raw[f] - raw[f]; /* NaN where it is infinite */
        for (int j = first; j < last; j++) out[j] = none;
        const double above = raw[f] - code_lowest[f];
        if (!(above >= 0 && above < code_extent[f]) || above != floor(above)) continue;
        const int column = code_place[code_at[f] + (int)above];
        if (column < N_COLUMNS) out[column] = 1;
    }
#else
    memcpy(out, raw, N_OWN * sizeof(double));
#endif
}
typedef double column;
#else
typedef dcpred_row column;
#endif

/* -- sixteen rows in single precision ------------------------------------------------------------------------ */

typedef struct { const float *factor, *high, *low, *middle; const double *double_factor; } centring;

/* z of 16 rows, one column after another; returns the squares of their lengths, NaN for a row that is not finite. */
static inline lanes load_rows(const dcpred_row *x, const int *row, centring of, row_lanes *z) {
#if HAS_COLUMNS || TAKES_DOUBLE
    row_doubles given[N_HELD];
#else
    row_lanes *given = z;
#endif
    lanes square = every(0);
    row_lanes spoilt;
    spoilt.v = every(0);
    for (int l = 0; l < LANES; l++) {
        const dcpred_row *own = x + (long)row[l] * N_FEATURES;
#if HAS_COLUMNS
        column found[N_COLUMNS];
        columns_of(own, found);
#else
        const column *found = own;
#endif
#if HAS_PICKS
        for (int j = 0; j < N_COLUMNS; j++) spoilt.f[l] += (float)(found[j] - found[j]);
#endif
        for (int j = 0; j < N_HELD; j++)
#if HAS_COLUMNS || TAKES_DOUBLE
            given[j].d[l] = found[PICK(j)];
#else
            given[j].f[l] = found[PICK(j)];
#endif
    }
    for (int j = 0; j < N_HELD; j++) {
#if HAS_COLUMNS || TAKES_DOUBLE
        const doubles scaled = (given[j].v - shift[j]) * of.double_factor[j] - (double)of.middle[j];
        z[j].v = __builtin_convertvector(scaled, lanes);
#else
        z[j].v = ((given[j].v - of.high[j]) - of.low[j]) * of.factor[j];
#endif
        square += z[j].v * z[j].v;
    }
    for (int j = N_HELD; j < GROUP_FEATURES; j++) z[j].v = every(0);
    return square + spoilt.v;
}

/* Sums over features of 16 rows and eight centres or landmarks. */
static inline void against(const row_lanes *z, const float *group, int kind, lanes *total) {
    lanes s0 = every(0), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
#define EACH(t) ADD(s##t, z[j].v, group[j * LANES + t])
#define ALL for (int j = 0; j < GROUP_FEATURES; j++) { EACH(0); EACH(1); EACH(2); EACH(3); EACH(4); EACH(5); EACH(6); EACH(7); }
    if (kind == 0) {
#define ADD(s, x, c) s += x * c
        ALL
#undef ADD
    } else if (kind == 1) {
#define ADD(s, x, c) { const lanes off = x - c; s += off * off; }
        ALL
#undef ADD
    } else {
#define ADD(s, x, c) { const lanes off = x - c; s += (lanes)((ints)off & 0x7FFFFFFF); }
        ALL
#undef ADD
    }
    total[0] = s0, total[1] = s1, total[2] = s2, total[3] = s3, total[4] = s4, total[5] = s5, total[6] = s6, total[7] = s7;
}

/* 2^t = whole + rest. */
static inline void exp2_parts(lanes t, lanes *whole, lanes *rest) {
    t = choose(t > -126.0f, t, every(-126.0f));
    t = choose(t < 126.0f, t, every(126.0f));
    const lanes nearest = (t + 12582912.0f) - 12582912.0f, r = t - nearest;
    lanes series = every(0.00015461448f);
    series = series * r + 0.0013390867f, series = series * r + 0.009618057f, series = series * r + 0.05550357f;
    series = series * r + 0.2402265f, series = series * r + 0.6931472f;
    *whole = (lanes)((__builtin_convertvector(nearest, ints) + 127) << 23);
    *rest = *whole * (series * r);
}

/* Kernel values less their values at the mean of the leaf, from sums over features; k: the constants of a landmark. */
static inline lanes kernel_lanes(lanes total, lanes square, int wide, const float *k) {
#define K(i) k[(i) * LANES]
#if KERNEL == POLYNOMIAL
    (void)square, (void)wide;
    const lanes base = total + K(0);
    lanes sum = every(1), power = every(K(0));
    for (int i = 1; i < DEGREE; i++) sum = sum * base + power, power *= K(0);
    return total * sum;
#else
    const lanes x = wide || KERNEL == LAPLACIAN ? -total * K(0) : total - square * K(0);
    lanes whole, rest;
#if KERNEL == RBF || KERNEL == LAPLACIAN
    exp2_parts(x - K(1), &whole, &rest);
    return rest + (whole - K(2));
#else
    lanes q = K(1) - x;
    q = choose(q < 1e4f, q, every(1e4f));
    lanes a2 = q + K(3);
    a2 = choose(a2 > 0.0f, a2, every(0));
    /* The root by the method of Newton, from a first guess by its bits. */
    lanes y = (lanes)(0x5f3759df - ((ints)a2 >> 1));
    y *= 1.5f - 0.5f * a2 * y * y, y *= 1.5f - 0.5f * a2 * y * y, y *= 1.5f - 0.5f * a2 * y * y;
    lanes a = a2 * y;
    a += 0.5f * y * (a2 - a * a);
    const lanes delta = (K(2) > 0.0f ? q : a2) / ((a + K(4)) + 1e-30f);
    exp2_parts(delta * -1.44269504f, &whole, &rest);
    const lanes in_a = a2 * K(6) + (a + 1.0f), less = rest + (whole - 1.0f);
    const lanes small = in_a * less + (q * K(6) + delta), large = in_a * (whole + rest) - K(5);
    return choose(delta < K(2), small, large);
#endif
#endif
#undef K
}

/* -- one row in double precision ----------------------------------------------------------------------------- */

/* The scaled columns of a row; returns whether all are finite. */
static int exact_row(const dcpred_row *x, double *out) {
    int finite = 1;
#if HAS_COLUMNS
    columns_of(x, out);
#else
    for (int j = 0; j < N_COLUMNS; j++) out[j] = x[j];
#endif
    for (int j = 0; j < N_COLUMNS; j++) {
        out[j] = (out[j] - exact_shift[j]) * exact_factor[j];
        finite &= fabs(out[j]) < LARGEST_SINGLE;
    }
    return finite;
}

/* The leaf of a scaled row that stands at a node. */
static int exact_leaf(const double *x, int node) {
    while (N_NODES && node >= 0) {
        float best = INFINITY;
        int child = exact_children[exact_starts[node]];
        for (int t = exact_starts[node]; t < exact_starts[node + 1]; t++) {
            double square = 0;
            for (int j = 0; j < N_COLUMNS; j++) square += (x[j] - centres[t * N_COLUMNS + j]) * (x[j] - centres[t * N_COLUMNS + j]);
            if ((float)(square / 2) < best) best = (float)(square / 2), child = exact_children[t];
        }
        node = child;
    }
    return node < 0 ? ~node : 0;
}

static double kernel_of(double t) {
#if KERNEL == POLYNOMIAL
    return pow(t + COEF0, DEGREE);
#elif KERNEL == RBF || KERNEL == LAPLACIAN
    return exp(-t);
#else
    const double a2 = MATERN_A2 * t, a = sqrt(a2 < 1e6 ? a2 : 1e6);
    return (1 + a + MATERN_K * a * a) * exp(-a);
#endif
}

static void add_term(double value, int term, double *out) {
    for (int k = 0; k < N_OUTPUTS; k++) out[k] += value * beta[(long)term * N_OUTPUTS + k];
}

static void exact_values(const double *x, int leaf, double *out) {
    for (int k = 0; k < N_OUTPUTS; k++) out[k] = intercept[leaf * N_OUTPUTS + k];
    int term = beta_at[leaf];
    if (term == beta_at[leaf + 1]) return;
    const int first = landmark_at[leaf], m = landmark_at[leaf + 1] - first;
    double c[MOST_LANDMARKS + 1], r[MOST_LANDMARKS + 1];
    const float *u = landmarks + (long)first * N_COLUMNS; /* feature by feature */
    for (int i = 0; i < m; i++) r[i] = 0;
    for (int j = 0; j < N_COLUMNS; j++, u += m) {
        const double xj = HAS_LEAF_FACTOR ? x[j] * exact_leaf_factor[HAS_LEAF_FACTOR * (leaf * N_COLUMNS + j)] : x[j];
        for (int i = 0; i < m; i++) r[i] += KERNEL == POLYNOMIAL ? xj * u[i] : KERNEL == LAPLACIAN ? fabs(xj - u[i]) : (xj - u[i]) * (xj - u[i]);
    }
    for (int i = 0; i < m; i++) {
        c[i] = kernel_of(exact_gamma[first + i] * r[i]);
        if (KERNEL != LAPLACIAN) r[i] = sqrt(r[i]);
        add_term(c[i], term++, out);
    }
    for (int p = exact_pair_at[leaf]; p < exact_pair_at[leaf + 1]; p++) add_term(c[pairs[2 * p]] * c[pairs[2 * p + 1]], term++, out);
    for (int s = triangle_at[leaf]; s < triangle_at[leaf + 1]; s += m) {
        double best = LOWER_BOUND ? 0 : INFINITY;
        for (int i = 0; i < m; i++) best = LOWER_BOUND ? fmax(best, fabs(r[i] - triangle[s + i])) : fmin(best, r[i] + triangle[s + i]);
        add_term(kernel_of(TRIANGLE_GAMMA * (KERNEL == LAPLACIAN ? best : best * best)), term++, out);
    }
}

/* -- outputs ------------------------------------------------------------------------------------------------- */

typedef struct { const dcpred_row *x; int *label; dcpred_value *decision; double *probability; } outputs;

#if HAS_PROBABILITY
static void probabilities(const dcpred_value *decision, int label, double *p) {
    double g[N_CLASSES] = {0}, most = -INFINITY, sum = 0;
    for (int k = 0; k < N_OUTPUTS; k++) {
        const double f = decision[k];
        int i = 0;
        while (i < N_KNOTS - 2 && f >= knot[i + 1]) i++;
        double value = f <= knot[0] ? knot_value[0] : f >= knot[N_KNOTS - 1] ? knot_value[N_KNOTS - 1] : 0;
        if (f > knot[0] && f < knot[N_KNOTS - 1]) value = knot_value[i] + (f - knot[i]) * (knot_value[i + 1] - knot_value[i]) / (knot[i + 1] - knot[i]);
        g[N_OUTPUTS == 1 ? 1 : k] = value;
    }
    for (int k = 0; k < N_CLASSES; k++) most = g[k] > most ? g[k] : most;
    for (int k = 0; k < N_CLASSES; k++) sum += g[k] = exp(g[k] - most);
    for (int k = 0; k < N_CLASSES; k++) p[k] = g[k] / sum * (1 - SHARE) + SHARE * prior[k];
    const double own = p[label];
    sum = 0;
    for (int k = 0; k < N_CLASSES; k++) {
        if (k != label && p[k] > own * (1 - 0x1p-20)) p[k] = own * (1 - 0x1p-20);
        sum += p[k];
    }
    for (int k = 0; k < N_CLASSES; k++) p[k] /= sum * class_weight[k];
    sum = 0;
    for (int k = 0; k < N_CLASSES; k++) sum += p[k];
    for (int k = 0; k < N_CLASSES; k++) p[k] /= sum;
}
#endif

/* The outputs of row i from its sums; `scored` is 0 for a row that has none. */
static inline void finish(outputs out, long i, int leaf, const double *value, int scored) {
    dcpred_value decision[N_OUTPUTS];
    (void)leaf;
#if HAS_TERMS
    double encoded[N_ENCODED], sum[N_OUTPUTS];
    memcpy(sum, value, sizeof sum);
    encoded_row(out.x + i * N_FEATURES, encoded);
    add_terms(encoded, sum);
    value = sum;
#endif
    for (int k = 0; k < N_OUTPUTS; k++) {
        double v = value[k];
#if IS_REGRESSION
        scored = scored && v - v == 0;
        if (bounded[leaf]) v = v < bounds[2 * leaf] ? bounds[2 * leaf] : v > bounds[2 * leaf + 1] ? bounds[2 * leaf + 1] : v;
#if TRANSFORM == 1
        v += TARGET_SHIFT, v = copysign(expm1(fabs(v)), v);
#elif TRANSFORM == 2
        v = copysign(v * v, v) + TARGET_SHIFT;
#endif
#endif
        decision[k] = (dcpred_value)v;
        scored = scored && decision[k] - decision[k] == 0;
    }
    int label = N_OUTPUTS == 1 && decision[0] > 0;
    for (int k = 1; k < N_OUTPUTS; k++) label = decision[k] > decision[label] ? k : label;
    if (out.label) out.label[i] = scored ? label : -1;
    if (out.decision)
        for (int k = 0; k < N_OUTPUTS; k++) out.decision[i * N_OUTPUTS + k] = scored ? decision[k] : (dcpred_value)NAN;
#if HAS_PROBABILITY
    if (out.probability) {
        double *p = out.probability + i * N_CLASSES;
        if (scored) probabilities(decision, label, p);
        else for (int k = 0; k < N_CLASSES; k++) p[k] = NAN;
    }
#endif
}

static void finish_exactly(const dcpred_row *x, outputs out, long i, int leaf) {
    double row[N_COLUMNS], value[N_OUTPUTS] = {0};
    const int finite = exact_row(x + i * N_FEATURES, row);
    if (finite) exact_values(row, leaf, value);
    finish(out, i, leaf, value, finite);
}

/* -- the tree and the leaves --------------------------------------------------------------------------------- */

/* sorted[:n] = order[:n] by keys from 0 to n_keys; equal keys keep their order. */
static void sort_by_key(const int *keys, const int *order, int n, int n_keys, int *sorted) {
    int counts[MOST_KEYS + 2];
    memset(counts, 0, (n_keys + 2) * sizeof(int));
    for (int i = 0; i < n; i++) counts[keys[order[i]] + 1]++;
    for (int k = 0; k < n_keys; k++) counts[k + 1] += counts[k];
    for (int i = 0; i < n; i++) sorted[counts[keys[order[i]]]++] = order[i];
}

/* The next rows of sorted[at:n] with one key, at most 16; `row` repeats the last one. */
static inline int next_rows(const int *keys, const int *sorted, int at, int n, int *row) {
    int count = 1;
    row[0] = sorted[at];
    while (count < LANES && at + count < n && keys[sorted[at + count]] == keys[row[0]]) row[count] = sorted[at + count], count++;
    for (int l = count; l < LANES; l++) row[l] = row[count - 1];
    return count;
}

/* The children of 16 rows at a node into child; −1 << 31 where single precision leaves several. */
static inline void children_of(const dcpred_row *x, const int *row, int at, row_ints *child) {
    row_lanes z[GROUP_FEATURES];
    lanes score[LANES];
    const centring of = {factor, origin_high, origin_low, origin_centre, double_factor};
    const lanes square = load_rows(x, row, of, z);
    lanes length = every(0);
    for (int l = 0; l < LANES; l++) length[l] = sqrtf(square[l]);
    for (int t = 0; t < LANES; t += AT_ONCE) {
        against(z, nodes + (long)at * GROUP_FEATURES * LANES + t, 0, score + t);
        for (int u = t; u < t + AT_ONCE; u++) score[u] -= half_norms[at * LANES + u];
    }
    lanes largest = score[0];
    for (int t = 1; t < LANES; t++) largest = choose(score[t] > largest, score[t], largest);
    const lanes both = length + radius[at];
    const lanes least = largest - (length * radius[at] * WALK_ERROR + both * both * (float)(4 * UNIT));
    ints found = (ints){0}, one = found, more = found;
    for (int t = 0; t < LANES; t++) {
        const ints near = score[t] >= least;
        found = (near & children[at * LANES + t]) | (~near & found);
        more |= one & near, one |= near;
    }
    const ints alone = one & ~more;
    child->v = (alone & found) | (~alone & (int)0x80000000);
}

/* leaf[i] of n rows; N_LEAVES for one that is not finite. */
static void descend(const dcpred_row *x, int n, int *leaf) {
    int node[BLOCK], order[BLOCK], sorted[BLOCK], active = 0;
    double exact[N_COLUMNS];
    for (int i = 0; i < n; i++) {
        if (!N_NODES) leaf[i] = 0;
        else if (!BY_DISTANCES) order[active++] = i, node[i] = 0;
        else leaf[i] = exact_row(x + (long)i * N_FEATURES, exact) ? exact_leaf(exact, 0) : N_LEAVES;
    }
    while (active > 0) {
        int going_on = 0, row[LANES], count;
        row_ints child;
        sort_by_key(node, order, active, N_NODES, sorted);
        for (int at = 0; at < active; at += count) {
            count = next_rows(node, sorted, at, active, row);
            children_of(x, row, node[row[0]], &child);
            for (int l = 0; l < count; l++) {
                const int i = row[l], to = child.i[l];
                if (to >= 0) order[going_on++] = i;
                if (to == (int)0x80000000) leaf[i] = exact_row(x + (long)i * N_FEATURES, exact) ? exact_leaf(exact, node[i]) : N_LEAVES;
                else if (to < 0) leaf[i] = ~to;
                node[i] = to;
            }
        }
        active = going_on;
    }
}

/* Sums of kernel values e, and of products of two, for each output and row. */
static inline void weighted_sums(int leaf, const lanes *e, row_lanes *value) {
    const float *own = weights + weight_at[leaf];
    const int m = n_landmarks[leaf], first = pair_at[leaf], last = pair_at[leaf + 1];
#if N_OUTPUTS == 1
    lanes s0 = every(0), s1 = s0, s2 = s0, s3 = s0;
    for (int j = 0; j < m; j += 4) s0 += e[j] * own[j], s1 += e[j + 1] * own[j + 1], s2 += e[j + 2] * own[j + 2], s3 += e[j + 3] * own[j + 3];
    own += m - first;
    for (int q = first; q < last; q += 4) {
        s0 += e[left[q]] * e[right[q]] * own[q], s1 += e[left[q + 1]] * e[right[q + 1]] * own[q + 1];
        s2 += e[left[q + 2]] * e[right[q + 2]] * own[q + 2], s3 += e[left[q + 3]] * e[right[q + 3]] * own[q + 3];
    }
    value[0].v = (s0 + s1) + (s2 + s3);
#else
    const int n = present_at[leaf + 1] - present_at[leaf];
    for (int k = 0; k < N_OUTPUTS; k++) value[k].v = every(0);
    for (int k = 0; k < n; k += AT_ONCE) {
        const float *w = own + k;
        lanes s0 = every(0), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
#define ADD(x) { const lanes c = x; s0 += c * w[0], s1 += c * w[1], s2 += c * w[2], s3 += c * w[3], s4 += c * w[4], s5 += c * w[5], s6 += c * w[6], s7 += c * w[7], w += TERM_WEIGHTS; }
        for (int j = 0; j < m; j++) ADD(e[j])
        for (int q = first; q < last; q++) ADD(e[left[q]] * e[right[q]])
#undef ADD
        const lanes total[AT_ONCE] = {s0, s1, s2, s3, s4, s5, s6, s7};
        for (int u = 0; u < AT_ONCE && k + u < n; u++) value[present[present_at[leaf] + k + u]].v = total[u];
    }
#endif
}

/* At most 16 rows of one leaf in single precision. */
static void score_rows(const dcpred_row *x, const int *row, int count, int leaf, outputs out) {
    row_lanes z[GROUP_FEATURES];
    lanes e[MOST_VALUES];
    row_lanes value[N_OUTPUTS];
    const int first = group_at[leaf], groups = group_at[leaf + 1] - first, wide = is_wide[leaf];
    const int centre = leaf * STRIDE, own = leaf * FACTOR_STEP;
    const centring of = {leaf_factor + own, means_high + centre, means_low + centre, means_centre + centre, double_leaf_factor + own};
    const lanes square = load_rows(x, row, of, z);
    const int kind = KERNEL == LAPLACIAN ? 2 : wide ? 1 : 0;
    for (int g = 0; g < groups; g++)
        for (int t = 0; t < LANES; t += AT_ONCE) {
            lanes total[AT_ONCE];
            const float *group = landmark_groups + (long)(first + g) * GROUP_FEATURES * LANES + t;
            if (kind == 0) against(z, group, 0, total);
            else if (kind == 1) against(z, group, 1, total);
            else against(z, group, 2, total);
            for (int u = 0; u < AT_ONCE; u++)
                e[g * LANES + t + u] = kernel_lanes(total[u], square, wide, constants + (long)(first + g) * N_CONSTANTS * LANES + t + u);
        }
    weighted_sums(leaf, e, value);
#if IS_REGRESSION || HAS_TERMS
    for (int l = 0; l < count; l++) {
        double mine[N_OUTPUTS];
        int sound = square[l] < 1e30f;
        for (int k = 0; k < N_OUTPUTS; k++) {
            mine[k] = constant[leaf * N_OUTPUTS + k] + (double)value[k].f[l];
            sound = sound && mine[k] - mine[k] == 0;
        }
        if (sound) finish(out, row[l], leaf, mine, 1);
        else finish_exactly(x, out, row[l], leaf);
    }
#else
    lanes best = every(0);
    ints sound = square < 1e30f, label = (ints){0};
    for (int k = 0; k < N_OUTPUTS; k++) {
        const double own_constant = constant[leaf * N_OUTPUTS + k];
        for (int l = 0; l < LANES; l++) value[k].f[l] = (float)(own_constant + (double)value[k].f[l]);
        const ints larger = N_OUTPUTS > 1 && k == 0 ? (ints){0} - 1 : value[k].v > best;
        best = choose(larger, value[k].v, best);
        label = (larger & (N_OUTPUTS > 1 ? k : 1)) | (~larger & label);
        sound &= value[k].v - value[k].v == 0.0f;
    }
    for (int l = 0; l < count; l++) {
        const long i = row[l];
        if (!sound[l]) {
            finish_exactly(x, out, i, leaf);
            continue;
        }
        if (out.label) out.label[i] = label[l];
        dcpred_value decision[N_OUTPUTS];
        for (int k = 0; k < N_OUTPUTS; k++) decision[k] = value[k].f[l];
        if (out.decision) memcpy(out.decision + i * N_OUTPUTS, decision, sizeof decision);
#if HAS_PROBABILITY
        if (out.probability) probabilities(decision, label[l], out.probability + i * N_CLASSES);
#endif
    }
#endif
}

static void score_block(const dcpred_row *x, int n, outputs out) {
    int leaf[BLOCK], order[BLOCK], sorted[BLOCK], row[LANES], count;
    double none[N_OUTPUTS] = {0};
    descend(x, n, leaf);
    for (int i = 0; i < n; i++) order[i] = i;
    sort_by_key(leaf, order, n, N_LEAVES, sorted);
    for (int at = 0; at < n; at += count) {
        count = next_rows(leaf, sorted, at, n, row);
        const int own = leaf[row[0]];
        if (own < N_LEAVES && group_at[own] < group_at[own + 1]) score_rows(x, row, count, own, out);
        else for (int l = 0; l < count; l++) {
            if (own == N_LEAVES) finish(out, row[l], 0, none, 0);
            else if (N_NODES && beta_at[own] == beta_at[own + 1]) finish(out, row[l], own, intercept + own * N_OUTPUTS, 1);
            else finish_exactly(x, out, row[l], own);
        }
    }
}

void dcpred_predict(const dcpred_row *x, long n, int *label, dcpred_value *decision, double *probability) {
    for (long start = 0; start < n; start += BLOCK) {
        const outputs out = {x + start * N_FEATURES, label ? label + start : 0, decision ? decision + start * N_OUTPUTS : 0, probability ? probability + start * N_CLASSES : 0};
        score_block(x + start * N_FEATURES, n - start < BLOCK ? (int)(n - start) : BLOCK, out);
    }
}
