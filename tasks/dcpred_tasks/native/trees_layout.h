// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.
#pragma once
#include "vectors.h"

constexpr int64_t LANES = 16;
constexpr int64_t NEVER = 255;
constexpr int64_t MOST_DEPTH = 8;
constexpr int64_t STRIP_ROWS = 64;
constexpr int64_t BLOCK_TREES = 32;
constexpr int64_t FEWEST_LEAVES = 64;
constexpr int64_t LARGEST_SUM = 32767;
constexpr double SHARPNESS = 2.0;
constexpr double NORMAL = 1.4826;
constexpr int64_t ROBUST = 2;
constexpr double ROW_SHARE = 0.8;
constexpr int64_t PATIENCE = 30;
constexpr int64_t MOST_SKETCHED = 4;
constexpr int64_t WHOLE_BITS = 30;
constexpr int64_t ROBUST_STEPS = 4;
constexpr int64_t SETTLED_TREES = 10;

struct Boosting {
    int64_t n_rows;
    int64_t n_learning;
    int64_t n_held;
    int64_t n_features;
    int64_t n_outputs;
    int64_t depth;
    int64_t most;
    int64_t loss;
    int64_t seed;
    double rate;
    double ridge;
    Array<uint8_t> bins;
    Array<uint8_t> columns;
    Array<int64_t> n_bins;
    Array<float> goal;
    Array<float> weight;
    Array<double> loss_numbers;
    Array<double> of_sums;
};

struct BoostingRoom {
    Array<double> reached;
    Array<float> f;
    Array<float> moved;
    Array<float> slope;
    Array<float> curvature;
    Array<uint8_t> signs;
    Array<int64_t> whole;
    Array<int32_t> rows;
    Array<int32_t> back;
    Array<int64_t> columns;
    Array<int64_t> cell_at;
    Array<int64_t> histograms;
    Array<float> gains;
    Array<uint8_t> leaf;
};

struct Grown {
    Array<int64_t> counts;
    Array<double> leaf;
    Array<int32_t> feature;
    Array<uint8_t> bin;
};

struct BoostingArguments {
    Boosting boosting;
    BoostingRoom room;
    Grown grown;
};

struct Forest {
    int64_t n_features;
    int64_t n_outputs;
    int64_t depth;
    int64_t n_leaves;
    Array<int64_t> used;
    Array<int64_t> levels;
    Array<int64_t> border_at;
    Array<float> borders;
    Array<int64_t> slots;
    Array<uint8_t> bins;
    Array<int64_t> block_at;
    Array<int16_t> values;
    Array<double> scale;
    Array<double> bias;
};

struct Strip {
    Array<uint8_t> bins;
    Array<uint8_t> leaves;
    Array<int32_t> totals;
};

struct Source {
    int64_t code;
    int64_t itemsize;
    int64_t address;
    int64_t stride;
};

struct Arguments {
    Forest forest;
    Strip strip;
    Source source;
    int64_t n;
    Array<double> out;
};
