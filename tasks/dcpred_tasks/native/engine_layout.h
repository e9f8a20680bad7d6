// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.
#pragma once
#include "vectors.h"

constexpr int64_t MOST_KNOTS = 63;
constexpr int64_t VERSION = 1;
constexpr int64_t LANES = 16;
constexpr int64_t SLAB = 256;
constexpr int64_t STRIP_ROWS = 64;
constexpr double UNIT = 5.960464477539063e-08;
constexpr int64_t FEW_FEATURES = 32;
constexpr double SKIP_SHARE = 0.65;
constexpr int64_t SKIP_FEATURES = 24;
constexpr double BORDER_ROWS = 0.02;
constexpr int64_t AT_ONCE = 8;
constexpr int64_t UNROLLED = 4;
constexpr double FIXED_NORM = 32000.0;
constexpr double FIXED_CENTRE_NORM = 65000.0;
constexpr int64_t FIXED_FEATURES = 1048576;
constexpr int64_t STEP = 64;
constexpr int64_t PARTS = 3;
constexpr int64_t PART_SUMS = 4;
constexpr int64_t TILE_FEATURES = 128;
constexpr int64_t TILE_GROUPS = 3;
constexpr int64_t SUMMED_GROUPS = 2;
constexpr double HUGE = 1e+30;
constexpr double ROOT_OF_HUGE = 1000000000000000.0;
constexpr int64_t NOWHERE = 4294967295;
constexpr int64_t NOT_SCORED = 0;
constexpr int64_t OK = 1;
constexpr int64_t NON_FINITE_FEATURE = 2;
constexpr int64_t NON_FINITE_RESULT = 4;
constexpr int64_t CHUNK_MISSING = 5;
constexpr int64_t CHUNK_CORRUPT = 6;
constexpr int64_t QUARANTINED = 7;
constexpr float THIRD = 0.3333333432674408;
constexpr float FAR = 1048576.0;

struct Columns {
    int64_t stride;
    int64_t coded;
    Array<int32_t> first;
    Array<int32_t> lowest;
    Array<int32_t> extent;
    Array<int32_t> place_at;
    Array<int32_t> place;
    Array<int32_t> indicated;
};

struct Gaps {
    Array<double> double_;
    Array<float> high;
    Array<float> low;
};

struct Maps {
    int64_t stride;
    Array<double> centre;
    Array<double> rate;
    Array<float> knots;
    Array<float> pieces;
};

struct FixedNodes {
    Array<int16_t> numbers;
    Array<float> unit;
    Array<float> error;
    Array<int64_t> span;
};

struct LeafFactors {
    Array<float> single;
    Array<double> double_;
    int64_t step;
};

struct Digits {
    int64_t steps;
    Array<int64_t> group_at;
    Array<int8_t> numbers;
    Array<float> unit;
};

struct Packed {
    int64_t n_features;
    int64_t n_columns;
    Columns columns;
    Gaps gaps;
    Maps maps;
    int64_t n_outputs;
    int64_t n_converted;
    int64_t width;
    int64_t group_features;
    int64_t term_weights;
    int64_t row_values;
    int64_t regression;
    Array<int32_t> picks;
    Array<float> factor;
    Array<double> shift;
    Array<double> double_factor;
    Array<float> origin_high;
    Array<float> origin_low;
    Array<float> origin_centre;
    double error;
    int64_t by_distances;
    FixedNodes fixed;
    Array<float> nodes;
    Array<float> half_norms;
    Array<float> radius;
    Array<int32_t> children;
    Array<int64_t> rank;
    int64_t n_by_digits;
    int64_t n_by_products;
    LeafFactors leaf_factors;
    Array<float> means_high;
    Array<float> means_low;
    Array<float> means_centre;
    Array<int64_t> group_at;
    Array<float> groups;
    Digits digits;
    Array<float> constants;
    int64_t kernel;
    int64_t absolute;
    Array<int64_t> n_landmarks;
    Array<int64_t> pair_at;
    Array<int64_t> left;
    Array<int64_t> right;
    Array<int64_t> weight_at;
    Array<float> weights;
    Array<int64_t> present_at;
    Array<int64_t> present;
    Array<double> constant;
    Array<double> bounds;
    Array<bool> bounded;
};

struct Exact {
    int64_t kernel;
    int64_t sum;
    Array<double> gamma;
    Array<double> shape;
    Columns columns;
    Array<double> gap;
    Array<double> shift;
    Array<double> factor;
    Array<int64_t> starts;
    Array<int32_t> children;
    Array<float> centres;
    Array<int64_t> landmark_at;
    Array<float> landmarks;
    Array<float> leaf_factor;
    Array<int64_t> pair_at;
    Array<int32_t> pairs;
    Array<int64_t> beta_at;
    Array<int64_t> present_at;
    Array<int32_t> present;
    Array<int64_t> weight_at;
    Array<float> weights;
    Array<double> intercept;
    int64_t most_landmarks;
};

struct Room {
    Array<float> rows;
    Array<float> mapped;
    Array<double> columns;
    Array<int64_t> columns_at;
    Array<float> norm;
    Array<uint32_t> node;
    Array<uint32_t> order;
    Array<uint32_t> next_order;
    Array<uint32_t> undecided;
    Array<int64_t> state;
    Array<int16_t> numbers;
    Array<int64_t> address;
    Array<int64_t> row_at;
    Array<int64_t> upcoming;
    Array<int64_t> shared;
    Array<int64_t> alone;
    Array<int64_t> centre_at;
    Array<int64_t> zeros;
    Array<float> products;
    Array<int64_t> counts;
    Array<uint32_t> leaf;
    Array<uint32_t> tile_sorted;
    Array<float> e;
    Array<int8_t> digits;
    Array<float> row_units;
    Array<int32_t> digit_sums;
    Array<float> feature_columns;
    Array<float> value_columns;
    Array<float> sums;
    Array<float> results;
    Array<double> double_results;
    Array<double> x;
    Array<double> raw;
    Array<double> c;
    Array<double> outputs;
};

struct Source {
    int64_t code;
    int64_t itemsize;
    int64_t address;
    int64_t stride;
};

struct Out {
    Array<float> singles;
    Array<double> doubles;
    Array<uint8_t> status;
    Array<uint32_t> leaf;
    Array<double> offset;
};

struct Arguments {
    Packed p;
    Exact q;
    Room room;
    int64_t descent_rows;
    int64_t leaf_rows;
    Source source;
    int64_t n;
    Out out;
};
